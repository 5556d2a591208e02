"""Hosts, origins, and network addresses: allowed hosts, same-origin checks, trusted proxies, and safe bind addresses.

`check_host` applies to every request. `check_same_origin_write` applies to writes with the session cookie, and
`check_same_origin_read` to event streams and other reads with the cookie. A request with a bearer token needs neither,
because a foreign page cannot make a browser send one.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from ade.accounts.model import UnsafeBind
from ade.server.problems import HttpFault, RequestRefused

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9._-]{0,251}))(?::(\d{1,5}))?", re.ASCII | re.IGNORECASE)
_END_OF_HOST = re.compile(r"[/?#]")
_USUAL_PORTS = {"http": "80", "https": "443"}


def check_host(host: str | None, allowed: Collection[str]) -> str:
    """Return the host in lower case, without its port. `*.example.org` in `allowed` matches all subdomains.

    Protects against DNS rebinding. Raises RequestRefused (400, 421).
    """
    name = _host_name(host)
    if name in allowed or any(each.startswith("*.") and name.endswith(each[1:]) for each in allowed):
        return name
    raise RequestRefused(
        HttpFault.MISDIRECTED_REQUEST,
        f"this server does not answer for {name[:100]!r}; if that is its name, add it to http.allowed_hosts",
    )


def host_of_target(target: str) -> str | None:
    """Return the host in an absolute-form request target, as sent to a proxy, or None for a path."""
    scheme, mark, rest = target.partition("://")
    if not mark or "/" in scheme:
        return None
    return _END_OF_HOST.split(rest, maxsplit=1)[0]


def check_same_host(named: str, host: str | None) -> None:
    """Reject a target whose host is not the checked Host header. Raises RequestRefused (421)."""
    if named.lower() != (host or "").strip().lower():
        raise RequestRefused(HttpFault.MISDIRECTED_REQUEST, "the address names another host than the header Host")


def origin_of(scheme: str, host: str | None) -> str:
    """Return the origin of our own pages for this request: scheme, host, and any non-default port."""
    match = _HOST.fullmatch(host or "")
    if match is None:
        raise RequestRefused(HttpFault.BAD_REQUEST, "the header Host is missing or not valid")
    port = "" if match[2] in (None, _USUAL_PORTS.get(scheme)) else f":{match[2]}"
    return f"{scheme}://{match[1].lower().rstrip('.')}{port}"


def check_same_origin_write(own: Collection[str], *, origin: str | None, fetch_site: str | None) -> None:
    """Require an Origin header with one of our origins; Sec-Fetch-Site, if sent, must be `same-origin` or `none`.

    Raises RequestRefused (403).
    """
    if origin is None:
        raise _cross_site("the header Origin is missing; a browser sends it, other programs should use a token")
    check_same_origin_read(own, origin=origin, fetch_site=fetch_site)


def check_same_origin_read(own: Collection[str], *, origin: str | None, fetch_site: str | None) -> None:
    """The same, but Origin can be missing, as browsers omit it for reads. Raises RequestRefused (403)."""
    if fetch_site is not None and fetch_site.strip().lower() not in ("same-origin", "none"):
        raise _cross_site("the request comes from a page of another site (Sec-Fetch-Site)")
    if origin is not None and origin.strip().lower() not in own:  # also `null`, from pages that hide their origin
        raise _cross_site(f"the origin {origin[:100]!r} is not this server's")


@lru_cache(maxsize=1_000)  # mostly the same in every request
def _host_name(host: str | None) -> str:
    match = _HOST.fullmatch((host or "").strip())
    if match is None:
        raise RequestRefused(HttpFault.BAD_REQUEST, "the header Host is missing or not valid")
    return match[1].lower().rstrip(".")


def _cross_site(detail: str) -> RequestRefused:
    return RequestRefused(HttpFault.CROSS_SITE_REQUEST, detail)


# The client address, for rate limits, sessions, and the log. A forwarded header counts only from a trusted proxy.


Network = IPv4Network | IPv6Network
Pairs = Sequence[tuple[str, str]]
_MOST_HOPS = 20
_CUSTOMER_BITS = 64
_WITH_PORT = re.compile(r"(\d+\.\d+\.\d+\.\d+):\d{1,5}|\[([0-9a-fA-F:.]+)\](?::\d{1,5})?", re.ASCII)


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse addresses and networks of proxies. Raises ValueError that names the invalid one."""
    return tuple(ip_network(text.strip()) for text in texts)


def client_address(peer: str | None, headers: Pairs, trusted: Sequence[Network] = ()) -> str:
    """Return the nearest address that is not a trusted proxy, or "" if it is unknown.

    X-Forwarded-For is read from the end, because only the entries that our own proxies appended are reliable.
    """
    nearest = _address(peer or "")
    if not trusted or nearest is None or not _is_trusted(nearest, trusted):
        return _told(peer or "")
    hops = [hop for name, value in headers if name.lower() == "x-forwarded-for" for hop in value.split(",")]
    for hop in reversed(hops[-_MOST_HOPS:]):
        address = _address(hop.strip())
        if address is None:
            break  # the entries before it are unreliable
        nearest = address
        if not _is_trusted(nearest, trusted):
            break
    return str(nearest)


def client_scheme(peer: str | None, headers: Pairs, scheme: str, trusted: Sequence[Network] = ()) -> str:
    """Return `https` also if a trusted proxy was reached over it. It determines cookies and our own origin."""
    nearest = _address(peer or "") if trusted else None
    if nearest is None or not _is_trusted(nearest, trusted):
        return scheme
    told = [value.strip().lower() for name, value in headers if name.lower() == "x-forwarded-proto"]
    last = told[-1].rpartition(",")[2].strip() if told else scheme
    return last if last in ("http", "https") else scheme


def counted_address(client: str) -> str:
    """Return the rate limit key of an unknown caller: for IPv6 the /64 network, which one customer has."""
    address = _address(client)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _CUSTOMER_BITS), strict=False))
    return client if address is None else str(address)


def is_loopback(bind: str) -> bool:
    """Return whether a server on this address is reachable only from this machine."""
    address = _address(bind)
    return bind == "localhost" if address is None else address.is_loopback


@lru_cache(maxsize=4_096)  # often the same in every request
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Normalize an address: no port, brackets, or zone, and IPv4-mapped IPv6 as IPv4."""
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((match[1] or match[2]) if match else text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


@lru_cache(maxsize=4_096)
def _told(peer: str) -> str:
    """The normalized address. The peer of a Unix socket has a name, or none."""
    address = _address(peer)
    return peer if address is None else str(address)


def _is_trusted(address: IPv4Address | IPv6Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


# The listen address, its host names, and `http.auth = "off"`.
#
# With `http.auth = "off"`, every caller is the operator of this machine, the account `local`. It has all permissions of
# an admin except voting and break-glass, because an approval requires an identified person. This is safe only while the
# server is reachable only from this machine, so other addresses than loopback are rejected. It is never the default:
# every user and every browser page on the machine has access.
#
# With `auth = "off"`, every request goes through `check_same_origin_read`, also writes: Origin or Sec-Fetch-Site
# identifies a page of another site, and other programs send neither.


Auth = Literal["required", "off"]
_ANY = frozenset({"", "0.0.0.0", "::", "*"})  # wildcard addresses, to compare with, not to bind to


def check_bind(host: str, auth: Auth = "required") -> None:
    """Raise UnsafeBind if authentication is off and the address is reachable from other hosts."""
    if auth == "off" and not is_loopback(host):
        raise UnsafeBind(
            f"http.auth is off, and {host or 'every address'} is reachable from other machines; listen on 127.0.0.1, or"
            " set http.auth to required"
        )


def hosts_of(host: str, more: Collection[str] = ()) -> frozenset[str]:
    """Return the allowed host names: loopback names, the bind address, and the configured names."""
    own = () if host in _ANY else (_in_brackets(host.lower()),)
    return LOOPBACK_HOSTS | {name.lower() for name in (*own, *more)}


def base_url(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL of the server for a user on this machine."""
    return f"{scheme}://{'localhost' if host in _ANY else _in_brackets(host)}:{port}"


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
