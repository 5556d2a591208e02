"""Credentials of a request: a bearer token or a session cookie, never both.

`check_query` rejects tokens in the URL, `read_credentials` reads the headers, and `ade.accounts.authentication` finds
the account.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from ade.server.problems import HttpFault, RequestRefused

# The session cookie.
#
# Over HTTPS it is named `__Host-ade`: the browser guarantees that no other host and no plain connection has set it.
# Over plain HTTP, as on localhost, that name cannot be used: Chromium (from 89) and Firefox accept Secure cookies from
# http://localhost, but Safari drops them, so sign-in would fail. There it is `ade-session-<port>` without Secure. The
# name contains the port because cookies ignore ports, and a second server on the machine would overwrite the session.
# Each name is valid only for its own scheme, so a cookie set over HTTP is not a session over HTTPS.
#
# A server below a base path shares its host with other programs, so its cookie is limited to that path, which the
# prefix `__Host-` does not allow: over HTTPS it is named `__Secure-ade` (decision 0046).
#
# SameSite is Lax, not Strict, so that a link to an approval in a chat or mail opens the page and not the sign-in page.
# `ade.server.addresses` checks that only pages of this server use the session.


HeaderPairs = Sequence[tuple[str, str]]
_MOST_CHARS, _MOST_COOKIES = 16_384, 100
_VALUE = re.compile(r"[A-Za-z0-9_-]{20,200}", re.ASCII)  # the format of session secrets
_PORT, _LONGEST_PORT = re.compile(r":(\d{1,5})$", re.ASCII), 6
_SECURE = ("__Host-", "__Secure-")


def cookie_name(scheme: str, host: str | None, base_path: str = "") -> str:
    """Return the cookie name for the scheme and the Host header of a request."""
    if scheme == "https":
        return "__Secure-ade" if base_path else "__Host-ade"
    return _name_of_port((host or "")[-_LONGEST_PORT:])


@lru_cache(maxsize=1_000)  # mostly the same in every request; only the end of the host is cached
def _name_of_port(end_of_host: str) -> str:
    port = _PORT.search(end_of_host)
    return f"ade-session-{port[1]}" if port else "ade-session"


def read_cookie(headers: HeaderPairs, name: str) -> str | None:
    """Return the first cookie of this name, or None if it is malformed. Excess cookies are ignored."""
    text = "; ".join(value for header, value in headers if header.lower() == "cookie")[:_MOST_CHARS]
    for part in text.split(";", _MOST_COOKIES)[:_MOST_COOKIES]:
        found, equals, value = part.strip(" \t").partition("=")
        if found == name and equals:
            bare = value.strip(" \t")
            return bare if _VALUE.fullmatch(bare) else None
    return None


def set_cookie(name: str, secret: str, lasts_s: int, base_path: str = "") -> str:
    """Return the Set-Cookie header. Raises ValueError for an invalid session secret."""
    if not _VALUE.fullmatch(secret):
        raise ValueError("this is no secret of a session")
    return f"{name}={secret}; Max-Age={max(0, lasts_s)}; {_attributes(name, base_path)}"


def delete_cookie(name: str, base_path: str = "") -> str:
    """Return the Set-Cookie header that deletes the cookie."""
    return f"{name}=; Max-Age=0; {_attributes(name, base_path)}"


def _attributes(name: str, base_path: str) -> str:
    return f"Path={base_path or '/'}; HttpOnly; SameSite=Lax{'; Secure' if name.startswith(_SECURE) else ''}"


_LONGEST = 200
_LOOKS_LIKE_TOKEN = re.compile(r"ade_[A-Za-z0-9_-]{40,}", re.ASCII)


class Credentials(Struct, frozen=True, kw_only=True):
    """The credentials of a request. `address` is its origin according to `client_address`."""

    token: str | None = None
    session: str | None = None
    address: str = ""

    def __repr__(self) -> str:
        return f"Credentials(address={self.address!r})"  # no secret in a log


def read_credentials(
    headers: HeaderPairs, *, scheme: str, host: str | None, base_path: str = "", address: str = ""
) -> Credentials:
    """Read the credentials. Raises RequestRefused (400) for both kinds: the account would be ambiguous."""
    token = _bearer(headers)
    session = read_cookie(headers, cookie_name(scheme, host, base_path))
    if token is not None and session is not None:
        raise RequestRefused(HttpFault.BAD_REQUEST, "send a bearer token or a session cookie, not both")
    return Credentials(token=token, session=session, address=address)


def check_query(query: HeaderPairs) -> None:
    """Reject a token in the URL, whatever its parameter is named: URLs are logged in many places.

    Raises RequestRefused (400).
    """
    if any(_LOOKS_LIKE_TOKEN.search(part) for pair in query for part in pair):
        raise RequestRefused(
            HttpFault.BAD_REQUEST,
            "a token must not be in a URL, where it would be logged; revoke this one, and send"
            " another as Authorization: Bearer",
        )


def _bearer(headers: HeaderPairs) -> str | None:
    """The token as sent. Another scheme or an overlong token yields "", which matches no account."""
    sent = next((value for name, value in headers if name.lower() == "authorization"), None)
    if sent is None:
        return None
    scheme, _, token = sent.strip(" \t").partition(" ")
    token = token.strip(" \t")
    return token if scheme.lower() == "bearer" and 0 < len(token) <= _LONGEST else ""
