"""Whose page asks: which hosts a server answers for, and that a browser's session is used by its own pages alone.

How it is used: `check_host` on every request; `check_same_origin_write` on everything that changes something and is
recognised by the session cookie; `check_same_origin_read` on event streams and other reads by the cookie. A request
with a bearer token needs neither, because no foreign page can make a browser send one.
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
    """The host in small letters, without its port. `allowed` has names, and `*.example.org` for all below one.

    Against foreign names that were made to lead to this machine. Raises RequestRefused (400, 421).
    """
    name = _host_name(host)
    if name in allowed or any(each.startswith("*.") and name.endswith(each[1:]) for each in allowed):
        return name
    raise RequestRefused(
        HttpFault.MISDIRECTED_REQUEST,
        f"this server does not answer for {name[:100]!r}; if it is known by that name, add it to http.allowed_hosts",
    )


def host_of_target(target: str) -> str | None:
    """The host that the address in a request names itself, as requests to a proxy do; None where it is a path alone."""
    scheme, mark, rest = target.partition("://")
    if not mark or "/" in scheme:
        return None
    return _END_OF_HOST.split(rest, maxsplit=1)[0]


def check_same_host(named: str, host: str | None) -> None:
    """What is checked is the header, so an address with another host is refused. Raises RequestRefused (421)."""
    if named.lower() != (host or "").strip().lower():
        raise RequestRefused(HttpFault.MISDIRECTED_REQUEST, "the address names another host than the header Host")


def origin_of(scheme: str, host: str | None) -> str:
    """The origin of our own pages as this request reaches us: scheme and host, and the port unless it is the usual."""
    match = _HOST.fullmatch(host or "")
    if match is None:
        raise RequestRefused(HttpFault.BAD_REQUEST, "the header Host is missing or is no host")
    port = "" if match[2] in (None, _USUAL_PORTS.get(scheme)) else f":{match[2]}"
    return f"{scheme}://{match[1].lower().rstrip('.')}{port}"


def check_same_origin_write(own: Collection[str], *, origin: str | None, fetch_site: str | None) -> None:
    """Both checks: the origin must be given and be one of ours, and the browser must not say that it is another site.

    Raises RequestRefused (403).
    """
    if origin is None:
        raise _cross_site("the header Origin is missing; a browser sends it, other programs should use a token")
    check_same_origin_read(own, origin=origin, fetch_site=fetch_site)


def check_same_origin_read(own: Collection[str], *, origin: str | None, fetch_site: str | None) -> None:
    """The same, but a browser need not say where a plain read comes from. Raises RequestRefused (403)."""
    if fetch_site is not None and fetch_site.strip().lower() not in ("same-origin", "none"):
        raise _cross_site("the browser says that a page of another site asks (Sec-Fetch-Site)")
    if origin is not None and origin.strip().lower() not in own:  # also `null`, of pages that hide where they are from
        raise _cross_site(f"the origin {origin[:100]!r} is not this server's")


@lru_cache(maxsize=1_000)  # of every request, and mostly the same
def _host_name(host: str | None) -> str:
    match = _HOST.fullmatch((host or "").strip())
    if match is None:
        raise RequestRefused(HttpFault.BAD_REQUEST, "the header Host is missing or is no host")
    return match[1].lower().rstrip(".")


def _cross_site(detail: str) -> RequestRefused:
    return RequestRefused(HttpFault.CROSS_SITE_REQUEST, detail)


# Where a request comes from. What a header says about that counts only if a proxy we trust has written it.
#
# How it is used: once for each request, with the peer of the connection, all headers, and the setting's list read by
# `read_networks` at the start; the answer is what limits count, sessions keep and the log shows.


Network = IPv4Network | IPv6Network
Pairs = Sequence[tuple[str, str]]
_MOST_HOPS = 20
_CUSTOMER_BITS = 64
_WITH_PORT = re.compile(r"(\d+\.\d+\.\d+\.\d+):\d{1,5}|\[([0-9a-fA-F:.]+)\](?::\d{1,5})?", re.ASCII)


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Addresses and networks of proxies. Raises ValueError that names the one that is none."""
    return tuple(ip_network(text.strip()) for text in texts)


def client_address(peer: str | None, headers: Pairs, trusted: Sequence[Network] = ()) -> str:
    """The nearest address that is no proxy of ours; the peer itself unless it is one. Empty: nobody knows.

    X-Forwarded-For is read from the end, because only what our own proxies have added there is true.
    """
    nearest = _address(peer or "")
    if not trusted or nearest is None or not _is_trusted(nearest, trusted):
        return _told(peer or "")
    hops = [hop for name, value in headers if name.lower() == "x-forwarded-for" for hop in value.split(",")]
    for hop in reversed(hops[-_MOST_HOPS:]):
        address = _address(hop.strip())
        if address is None:
            break  # what stands before it cannot be relied on
        nearest = address
        if not _is_trusted(nearest, trusted):
            break
    return str(nearest)


def client_scheme(peer: str | None, headers: Pairs, scheme: str, trusted: Sequence[Network] = ()) -> str:
    """`https` also if a proxy we trust was reached by it; that decides about cookies and our own origin."""
    nearest = _address(peer or "") if trusted else None
    if nearest is None or not _is_trusted(nearest, trusted):
        return scheme
    told = [value.strip().lower() for name, value in headers if name.lower() == "x-forwarded-proto"]
    last = told[-1].rpartition(",")[2].strip() if told else scheme
    return last if last in ("http", "https") else scheme


def counted_address(client: str) -> str:
    """What limits count for somebody unknown. Of IPv6 the first half: one customer has all addresses below it."""
    address = _address(client)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _CUSTOMER_BITS), strict=False))
    return client if address is None else str(address)


def is_loopback(bind: str) -> bool:
    """Whether a server that listens there is reached from this machine alone."""
    address = _address(bind)
    return bind == "localhost" if address is None else address.is_loopback


@lru_cache(maxsize=4_096)  # of every request, and often the same
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """One form for one address: without port, brackets and zone, and an IPv4 one inside IPv6 as what it is."""
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((match[1] or match[2]) if match else text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


@lru_cache(maxsize=4_096)
def _told(peer: str) -> str:
    """A socket in the file system has a name, or none."""
    address = _address(peer)
    return peer if address is None else str(address)


def _is_trusted(address: IPv4Address | IPv6Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


# Where a server listens, by which names it is known there, and whom it may trust without asking.
#
# `http.auth = "off"` means that whoever reaches the server is the operator of this machine, the account `local`: it
# may do all that an admin may, but it cannot vote and cannot break the glass, because an approval counts a person,
# and here nobody has said who he is. That holds only while nobody but this machine reaches the server, so it is
# refused anywhere but on a loopback address, and it is never the default: every user and every browser page of the
# machine gets in too.
#
# How it is used: `check_bind` before the socket is opened; `hosts_of` once, for `check_host`. With `auth = "off"`
# every request goes through `check_same_origin_read`, also those that change something: a page of another site is
# told by its Origin or Sec-Fetch-Site, and other programs send neither.


Auth = Literal["required", "off"]
_ANY = frozenset({"", "0.0.0.0", "::", "*"})  # addresses to be told from others, none to bind to


def check_bind(host: str, auth: Auth = "required") -> None:
    """Raises UnsafeBind for an address that others may reach while nobody is asked who he is."""
    if auth == "off" and not is_loopback(host):
        raise UnsafeBind(
            f"http.auth is off, and {host or 'every address'} can be reached from elsewhere; listen on 127.0.0.1, or"
            " set http.auth to required"
        )


def hosts_of(host: str, more: Collection[str] = ()) -> frozenset[str]:
    """The names that requests may be addressed to: this machine's own, the address that is bound, and those set."""
    own = () if host in _ANY else (_in_brackets(host.lower()),)
    return LOOPBACK_HOSTS | {name.lower() for name in (*own, *more)}


def base_url(host: str, port: int, scheme: str = "http") -> str:
    """What people on this machine type to reach the server."""
    return f"{scheme}://{'localhost' if host in _ANY else _in_brackets(host)}:{port}"


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
