"""How much a request may be. Whatever is beyond is refused before anything of it is kept or looked at further.

How it is used: `check_target` and `check_headers` first, `check_length` before the body is read, `check_size` while it
is (a body in chunks has no length), `check_parameters` on the decoded query.
"""

import re
from collections.abc import Sequence, Set

from msgspec import Struct

from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

Pairs = Sequence[tuple[str, str]]


class RequestLimits(Struct, frozen=True, kw_only=True):
    body_bytes: int = 8 * 1024 * 1024
    json_depth: int = 64
    target_chars: int = 8_192
    parameters: int = 100
    parameter_chars: int = 2_000
    headers: int = 100
    header_chars: int = 16_384  # of one
    all_header_chars: int = 65_536


USUAL = RequestLimits()
_LENGTH = re.compile(r"\d{1,18}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_TAB = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NAMES = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]*", re.ASCII)
_ONCE = frozenset({
    "authorization", "content-length", "content-type", "host", "idempotency-key", "last-event-id", "origin",
    "sec-fetch-site", "transfer-encoding",
})  # fmt: skip
_SECRETS = frozenset({"access_token", "api_key", "apikey", "authorization", "password", "secret", "session", "token"})


def check_target(target: str, limits: RequestLimits = USUAL) -> None:
    """The path and query as they were sent. Raises RequestRefused (400, 414)."""
    if len(target) > limits.target_chars:
        raise RequestRefused(Fault.URI_TOO_LONG, f"an address has at most {limits.target_chars:,} characters here")
    if not target.startswith("/") or _CONTROL.search(target):
        raise RequestRefused(Fault.BAD_REQUEST, "an address begins with / and has no control characters")


def check_headers(headers: Pairs, limits: RequestLimits = USUAL) -> None:
    """Raises RequestRefused (400, 431). Where a request ends must be beyond doubt: such headers come only once."""
    sizes = [len(name) + len(value) for name, value in headers]
    if (
        len(sizes) > limits.headers
        or sum(sizes) > limits.all_header_chars
        or max(sizes, default=0) > limits.header_chars
    ):
        raise RequestRefused(
            Fault.HEADERS_TOO_LARGE,
            f"at most {limits.headers} headers, {limits.header_chars:,} characters each and"
            f" {limits.all_header_chars:,} together",
        )
    # All names together and all values together: every request comes by here.
    are_names = all(name for name, _ in headers) and _NAMES.fullmatch("".join([name for name, _ in headers]))
    if not are_names or _CONTROL_BUT_TAB.search("".join([value for _, value in headers])):
        raise RequestRefused(Fault.BAD_REQUEST, "a header has a name or a value with characters that none may have")
    names = [name.lower() for name, _ in headers]
    seen = set(names)
    if len(seen) < len(names):
        for name in sorted(seen & _ONCE):
            if names.count(name) > 1:
                raise RequestRefused(Fault.BAD_REQUEST, f"the header {name} may come only once")
    if "transfer-encoding" in seen:
        _check_encoding(headers, seen)


def _check_encoding(headers: Pairs, seen: Set[str]) -> None:
    for name, value in headers:
        if name.lower() == "transfer-encoding" and value.strip(" \t").lower() != "chunked":
            raise RequestRefused(Fault.BAD_REQUEST, "a body may come in chunks, but not in another encoding")
    if "content-length" in seen:
        raise RequestRefused(Fault.BAD_REQUEST, "a request has a Content-Length or a Transfer-Encoding, not both")


def check_length(content_length: str | None, limits: RequestLimits = USUAL) -> None:
    """What the request says about its body. Raises RequestRefused (400, 413)."""
    if content_length is None:
        return
    if not _LENGTH.fullmatch(content_length):
        raise RequestRefused(Fault.BAD_REQUEST, "Content-Length is a number of bytes")
    check_size(int(content_length), limits)


def check_size(read: int, limits: RequestLimits = USUAL) -> None:
    """So many bytes of the body have come. Raises RequestRefused (413)."""
    if read > limits.body_bytes:
        raise RequestRefused(
            Fault.PAYLOAD_TOO_LARGE,
            f"a body has at most {limits.body_bytes:,} bytes here; send less at once, or store it elsewhere and pass a"
            " reference",
            limit=limits.body_bytes,
        )


def check_parameters(query: Pairs, limits: RequestLimits = USUAL) -> None:
    """Raises RequestRefused (400). Secrets are refused too: addresses are written down in many places."""
    if len(query) > limits.parameters:
        raise RequestRefused(Fault.BAD_REQUEST, f"a request has at most {limits.parameters} parameters")
    for name, value in query:
        if len(name) > limits.parameter_chars or len(value) > limits.parameter_chars:
            raise RequestRefused(Fault.BAD_REQUEST, f"a parameter has at most {limits.parameter_chars:,} characters")
        if _CONTROL.search(name) or _CONTROL.search(value) or not _is_text(name + value):
            raise RequestRefused(Fault.BAD_REQUEST, "a parameter is UTF-8 text without control characters")
        if name.lower() in _SECRETS:
            raise RequestRefused(
                Fault.BAD_REQUEST, f"{name[:20]} does not belong into an address; send a token as Authorization: Bearer"
            )


def _is_text(value: str) -> bool:
    """No half of a surrogate pair, as bytes that are not UTF-8 are sometimes decoded to."""
    return not any("\ud800" <= char <= "\udfff" for char in value) if not value.isascii() else True
