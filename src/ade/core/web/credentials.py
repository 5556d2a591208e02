"""By what a request shows who asks: a bearer token, or the cookie of a session, and never both.

How it is used: `check_query` on the decoded query, `read_credentials` with all headers, and then
`ade.governance.authenticating`.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from ade.core.web.cookies import cookie_name, read_cookie
from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

Pairs = Sequence[tuple[str, str]]
_LONGEST = 200
_LOOKS_LIKE_TOKEN = re.compile(r"ade_[A-Za-z0-9_-]{40,}", re.ASCII)


class Credentials(Struct, frozen=True, kw_only=True):
    """`address` is where the request comes from, as `client_address` tells it."""

    token: str | None = None
    session: str | None = None
    address: str = ""

    def __repr__(self) -> str:
        return f"Credentials(address={self.address!r})"  # no secret in a log


def read_credentials(headers: Pairs, *, scheme: str, host: str | None, address: str = "") -> Credentials:
    """Raises RequestRefused (400) when both are given: it would not be clear for whom to act."""
    token = _bearer(headers)
    session = read_cookie(headers, cookie_name(scheme, host))
    if token is not None and session is not None:
        raise RequestRefused(Fault.BAD_REQUEST, "send a bearer token or the cookie of a session, not both")
    return Credentials(token=token, session=session, address=address)


def check_query(query: Pairs) -> None:
    """Refuse a token in the address, whatever its parameter is called: addresses are written down in many places.

    Raises RequestRefused (400).
    """
    if any(_LOOKS_LIKE_TOKEN.search(part) for pair in query for part in pair):
        raise RequestRefused(
            Fault.BAD_REQUEST,
            "a token does not belong into an address, where it would be written down; revoke this one, and send"
            " another as Authorization: Bearer",
        )


def _bearer(headers: Pairs) -> str | None:
    """The token as it was sent; another scheme, or what is too long to be one, is a token that nobody has."""
    sent = next((value for name, value in headers if name.lower() == "authorization"), None)
    if sent is None:
        return None
    scheme, _, token = sent.strip(" \t").partition(" ")
    token = token.strip(" \t")
    return token if scheme.lower() == "bearer" and 0 < len(token) <= _LONGEST else ""
