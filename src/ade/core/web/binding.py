"""Where a server listens, by which names it is known there, and whom it may trust without asking.

`http.auth = "off"` means that whoever reaches the server is the operator of this machine, the account `local`: it may
do all that an admin may, but it cannot vote and cannot break the glass, because an approval counts a person, and here
nobody has said who he is. That holds only while nobody but this machine reaches the server, so it is refused anywhere
but on a loopback address, and it is never the default: every user and every browser page of the machine gets in too.

How it is used: `check_bind` before the socket is opened; `hosts_of` once, for `check_host`. With `auth = "off"` every
request goes through `check_same_origin_read`, also those that change something: a page of another site is told by its
Origin or Sec-Fetch-Site, and other programs send neither.
"""

from collections.abc import Collection
from typing import Literal

from ade.core.accounts.errors import UnsafeBind
from ade.core.web.addresses import is_loopback
from ade.core.web.origins import LOOPBACK_HOSTS

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
