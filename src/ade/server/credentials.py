"""By what a request shows who asks: a bearer token, or the cookie of a session, and never both.

How it is used: `check_query` on the decoded query, `read_credentials` with all headers, and then
`ade.accounts.authentication`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from ade.server.problems import HttpFault, RequestRefused

# The cookie of a login session.
#
# Over https it is `__Host-ade`: the browser itself sees to it that no other host and no plain connection has set it.
# Over plain http, as on one's own machine, that name cannot be used: Chromium (from 89) and Firefox take Secure
# cookies from http://localhost, but Safari drops them and nobody could sign in. There it is `ade-session-<port>`
# without Secure; the port is in it because cookies know no ports, and a second server on this machine would sign one
# out. Each name counts only over its own scheme, so that what was set over http is no session over https.
#
# SameSite is Lax and not Strict, so that a link to an approval in a chat or a mail leads to the page and not to the
# login. That the session is used by our own pages alone is for `ade.server.addresses` to see to.


HeaderPairs = Sequence[tuple[str, str]]
_MOST_CHARS, _MOST_COOKIES = 16_384, 100
_VALUE = re.compile(r"[A-Za-z0-9_-]{20,200}", re.ASCII)  # what our secrets are made of
_PORT, _LONGEST_PORT = re.compile(r":(\d{1,5})$", re.ASCII), 6
_ATTRIBUTES = "Path=/; HttpOnly; SameSite=Lax"


def cookie_name(scheme: str, host: str | None) -> str:
    """For a request that was sent by this scheme to this host, as its header has it."""
    if scheme == "https":
        return "__Host-ade"
    return _name_of_port((host or "")[-_LONGEST_PORT:])


@lru_cache(maxsize=1_000)  # of every request, and mostly the same; strangers send long hosts, which are not kept
def _name_of_port(end_of_host: str) -> str:
    port = _PORT.search(end_of_host)
    return f"ade-session-{port[1]}" if port else "ade-session"


def read_cookie(headers: HeaderPairs, name: str) -> str | None:
    """The first cookie of this name that can be one of ours. What is malformed, or too much, is passed over."""
    text = "; ".join(value for header, value in headers if header.lower() == "cookie")[:_MOST_CHARS]
    for part in text.split(";", _MOST_COOKIES)[:_MOST_COOKIES]:
        found, equals, value = part.strip(" \t").partition("=")
        if found == name and equals:
            bare = value.strip(" \t")
            return bare if _VALUE.fullmatch(bare) else None
    return None


def set_cookie(name: str, secret: str, lasts_s: int) -> str:
    """The header Set-Cookie. Raises ValueError for what is no secret of a session."""
    if not _VALUE.fullmatch(secret):
        raise ValueError("this is no secret of a session")
    return f"{name}={secret}; Max-Age={max(0, lasts_s)}; {_attributes(name)}"


def delete_cookie(name: str) -> str:
    return f"{name}=; Max-Age=0; {_attributes(name)}"


def _attributes(name: str) -> str:
    return f"{_ATTRIBUTES}; Secure" if name.startswith("__Host-") else _ATTRIBUTES


_LONGEST = 200
_LOOKS_LIKE_TOKEN = re.compile(r"ade_[A-Za-z0-9_-]{40,}", re.ASCII)


class Credentials(Struct, frozen=True, kw_only=True):
    """`address` is where the request comes from, as `client_address` tells it."""

    token: str | None = None
    session: str | None = None
    address: str = ""

    def __repr__(self) -> str:
        return f"Credentials(address={self.address!r})"  # no secret in a log


def read_credentials(headers: HeaderPairs, *, scheme: str, host: str | None, address: str = "") -> Credentials:
    """Raises RequestRefused (400) when both are given: it would not be clear for whom to act."""
    token = _bearer(headers)
    session = read_cookie(headers, cookie_name(scheme, host))
    if token is not None and session is not None:
        raise RequestRefused(HttpFault.BAD_REQUEST, "send a bearer token or the cookie of a session, not both")
    return Credentials(token=token, session=session, address=address)


def check_query(query: HeaderPairs) -> None:
    """Refuse a token in the address, whatever its parameter is called: addresses are written down in many places.

    Raises RequestRefused (400).
    """
    if any(_LOOKS_LIKE_TOKEN.search(part) for pair in query for part in pair):
        raise RequestRefused(
            HttpFault.BAD_REQUEST,
            "a token does not belong into an address, where it would be written down; revoke this one, and send"
            " another as Authorization: Bearer",
        )


def _bearer(headers: HeaderPairs) -> str | None:
    """The token as it was sent; another scheme, or what is too long to be one, is a token that nobody has."""
    sent = next((value for name, value in headers if name.lower() == "authorization"), None)
    if sent is None:
        return None
    scheme, _, token = sent.strip(" \t").partition(" ")
    token = token.strip(" \t")
    return token if scheme.lower() == "bearer" and 0 < len(token) <= _LONGEST else ""
