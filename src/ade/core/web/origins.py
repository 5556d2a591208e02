"""Whose page asks: which hosts a server answers for, and that a browser's session is used by its own pages alone.

How it is used: `check_host` on every request; `check_same_origin_write` on everything that changes something and is
recognised by the session cookie; `check_same_origin_read` on event streams and other reads by the cookie. A request
with a bearer token needs neither, because no foreign page can make a browser send one.
"""

import re
from collections.abc import Collection
from functools import lru_cache

from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

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
        Fault.MISDIRECTED_REQUEST,
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
        raise RequestRefused(Fault.MISDIRECTED_REQUEST, "the address names another host than the header Host")


def origin_of(scheme: str, host: str | None) -> str:
    """The origin of our own pages as this request reaches us: scheme and host, and the port unless it is the usual."""
    match = _HOST.fullmatch(host or "")
    if match is None:
        raise RequestRefused(Fault.BAD_REQUEST, "the header Host is missing or is no host")
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
        raise RequestRefused(Fault.BAD_REQUEST, "the header Host is missing or is no host")
    return match[1].lower().rstrip(".")


def _cross_site(detail: str) -> RequestRefused:
    return RequestRefused(Fault.CROSS_SITE_REQUEST, detail)
