"""Request limits, media types, and strict JSON parsing: whatever exceeds a limit is rejected before it is processed.

`check_target` and `check_headers` come first, then `check_length` before the body is read, `check_size` while it is
read (a chunked body has no length), and `check_parameters` on the decoded query.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence, Set
from itertools import accumulate
from typing import Any

from msgspec import Struct

from ade.server.problems import HttpFault, RequestRefused

Pairs = Sequence[tuple[str, str]]


class RequestLimits(Struct, frozen=True, kw_only=True):
    """Size limits of a request."""

    body_bytes: int = 8 * 1024 * 1024
    json_depth: int = 64
    target_chars: int = 8_192
    parameters: int = 100
    parameter_chars: int = 2_000
    headers: int = 100
    header_chars: int = 16_384  # per header
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
    """Check the path and query as sent. Raises RequestRefused (400, 414)."""
    if len(target) > limits.target_chars:
        raise RequestRefused(HttpFault.URI_TOO_LONG, f"an address has at most {limits.target_chars:,} characters here")
    if not target.startswith("/") or _CONTROL.search(target):
        raise RequestRefused(HttpFault.BAD_REQUEST, "an address begins with / and has no control characters")


def check_headers(headers: Pairs, limits: RequestLimits = USUAL) -> None:
    """Check names, values, and sizes. Raises RequestRefused (400, 431).

    Headers that determine where a request ends must occur only once, to prevent request smuggling.
    """
    sizes = [len(name) + len(value) for name, value in headers]
    if (
        len(sizes) > limits.headers
        or sum(sizes) > limits.all_header_chars
        or max(sizes, default=0) > limits.header_chars
    ):
        raise RequestRefused(
            HttpFault.HEADERS_TOO_LARGE,
            f"at most {limits.headers} headers, {limits.header_chars:,} characters each and"
            f" {limits.all_header_chars:,} together",
        )
    # One match for all names and one for all values, because this runs for every request.
    are_names = all(name for name, _ in headers) and _NAMES.fullmatch("".join([name for name, _ in headers]))
    if not are_names or _CONTROL_BUT_TAB.search("".join([value for _, value in headers])):
        raise RequestRefused(HttpFault.BAD_REQUEST, "a header name or value contains invalid characters")
    names = [name.lower() for name, _ in headers]
    seen = set(names)
    if len(seen) < len(names):
        for name in sorted(seen & _ONCE):
            if names.count(name) > 1:
                raise RequestRefused(HttpFault.BAD_REQUEST, f"the header {name} can be sent only once")
    if "transfer-encoding" in seen:
        _check_encoding(headers, seen)


def _check_encoding(headers: Pairs, seen: Set[str]) -> None:
    for name, value in headers:
        if name.lower() == "transfer-encoding" and value.strip(" \t").lower() != "chunked":
            raise RequestRefused(HttpFault.BAD_REQUEST, "a body can be chunked, but not in another encoding")
    if "content-length" in seen:
        raise RequestRefused(HttpFault.BAD_REQUEST, "a request has a Content-Length or a Transfer-Encoding, not both")


def check_length(content_length: str | None, limits: RequestLimits = USUAL) -> None:
    """Check the Content-Length header. Raises RequestRefused (400, 413)."""
    if content_length is None:
        return
    if not _LENGTH.fullmatch(content_length):
        raise RequestRefused(HttpFault.BAD_REQUEST, "Content-Length is a number of bytes")
    check_size(int(content_length), limits)


def check_size(read: int, limits: RequestLimits = USUAL) -> None:
    """Check the number of body bytes read so far. Raises RequestRefused (413)."""
    if read > limits.body_bytes:
        raise RequestRefused(
            HttpFault.PAYLOAD_TOO_LARGE,
            f"a body has at most {limits.body_bytes:,} bytes here; send less at once, or store it elsewhere and pass a"
            " reference",
            limit=limits.body_bytes,
        )


def check_parameters(query: Pairs, limits: RequestLimits = USUAL) -> None:
    """Check the query. Raises RequestRefused (400), also for secrets: URLs are logged in many places."""
    if len(query) > limits.parameters:
        raise RequestRefused(HttpFault.BAD_REQUEST, f"a request has at most {limits.parameters} parameters")
    for name, value in query:
        if len(name) > limits.parameter_chars or len(value) > limits.parameter_chars:
            raise RequestRefused(
                HttpFault.BAD_REQUEST, f"a parameter has at most {limits.parameter_chars:,} characters"
            )
        if _CONTROL.search(name) or _CONTROL.search(value) or not _is_text_limits(name + value):
            raise RequestRefused(HttpFault.BAD_REQUEST, "a parameter is UTF-8 text without control characters")
        if name.lower() in _SECRETS:
            raise RequestRefused(
                HttpFault.BAD_REQUEST,
                f"{name[:20]} must not be in a URL; send a token as Authorization: Bearer",
            )


def _is_text_limits(value: str) -> bool:
    """No lone surrogates, to which some decoders map bytes that are not UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in value) if not value.isascii() else True


# JSON bodies. Parsers differ in how they treat duplicate names, NaN, and lone surrogates, so a proxy that checks a
# request and the server that executes it could read two different requests. Such bodies are rejected.


JSON = "application/json"
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [1 if chr(byte) in "[{" else -1 for byte in range(256)]
_SUSPICIOUS = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_UNTOLD = re.compile("[\x00\ud800-\udfff]")
_LONGEST_NUMBER = 400
_LARGE_NUMBER = re.compile(rb"[0-9]{100}|[0-9][eE]\+?[0-9]{3}")  # finds all numbers that are too large or too long


def read_json(body: bytes, limits: RequestLimits = USUAL) -> Any:
    """Return the JSON value of a body. Raises RequestRefused (400)."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise _refused("the body is not UTF-8") from None
    if depth(body) > limits.json_depth:
        raise _refused(f"the body has lists and objects inside each other more than {limits.json_depth} deep")
    try:
        value = (_CAREFUL if _LARGE_NUMBER.search(body) else _USUAL).decode(text)
    except json.JSONDecodeError as error:
        raise _refused(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    if _SUSPICIOUS.search(body) and not _is_text(value):
        raise _refused("a string contains NUL, or half of a surrogate pair")
    return value


def depth(body: bytes) -> int:
    """Return the nesting depth by counting brackets, without recursion, so that no body makes it fail."""
    quoted = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # every other part between quotes is a string
    brackets = b"".join(quoted.split(b'"')[::2]).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def check_media_type(content_type: str | None, taken: Sequence[str] = (JSON,)) -> None:
    """Raise RequestRefused (415) unless it is JSON. A form on a foreign page can send other types."""
    if content_type == JSON and JSON in taken:
        return  # the common case
    media, _, parameters = (content_type or "").partition(";")
    charset = re.search(r"charset\s*=\s*\"?([\w-]+)", parameters, re.IGNORECASE | re.ASCII)
    is_utf8 = charset is None or charset[1].lower() in ("utf-8", "utf8")
    if media.strip().lower() not in taken or not is_utf8:
        raise RequestRefused(
            HttpFault.UNSUPPORTED_MEDIA_TYPE, f"send {' or '.join(taken)} in UTF-8", accept=list(taken)
        )


def choose_media_type(accept: str | None, offered: Sequence[str]) -> str:
    """Return the offer that Accept prefers, the first of equals. Raises RequestRefused (406)."""
    if accept is None or not accept.strip():
        return offered[0]
    ranges = [_range(part) for part in accept[:4_096].split(",") if part.strip()]
    liked = [(_quality(offer, ranges), offer) for offer in offered]
    quality, best = max(liked, key=lambda pair: pair[0])
    if quality <= 0:
        raise RequestRefused(
            HttpFault.NOT_ACCEPTABLE, f"this is offered as {' or '.join(offered)}", offered=list(offered)
        )
    return best


def _range(part: str) -> tuple[str, float]:
    media, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
    return media, float(quality) if re.fullmatch(r"[01](\.\d{0,3})?", quality, re.ASCII) else 0.0


def _quality(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The quality of the most specific range that matches."""
    known = dict(reversed(ranges))
    family = f"{offer.partition('/')[0]}/*"
    return next((known[each] for each in (offer, family, "*/*") if each in known), 0.0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(name for name, _ in pairs)  # in linear time: a large body has hundreds of thousands of them
        twice = next(name for name, times in counted.items() if times > 1)
        raise _refused(f"an object has {twice[:60]!r} twice")
    return found


def _constant(word: str) -> Any:
    raise _refused(f"{word} is not a JSON number")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _refused(f"{digits[:60]} is too large for a number")
    return value


def _int(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise _refused(f"a number has {len(digits):,} digits, more than {_LONGEST_NUMBER}; send it as a string")
    return int(digits)


def _is_text(value: Any) -> bool:
    match value:
        case str():
            return _UNTOLD.search(value) is None
        case list():
            return all(map(_is_text, value))
        case dict():
            return all(_is_text(name) and _is_text(each) for name, each in value.items())
    return True


def _refused(detail: str) -> RequestRefused:
    return RequestRefused(HttpFault.INVALID_JSON, detail)


_USUAL = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_CAREFUL = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int)
