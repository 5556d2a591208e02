"""JSON bodies: one value, read in one way only.

Parsers differ in what they make of a name that comes twice, of NaN or of half a surrogate pair, so whoever checks a
request and whoever carries it out could see two requests. Such bodies are refused. How it is used: `check_media_type`
for routes with a body, then `read_json`, and what it answers is converted with `msgspec.convert(..., strict=True)` into
a struct with `forbid_unknown_fields`; its ValidationError is told with `refused_fields`.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ade.core.web.limits import USUAL, RequestLimits
from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

JSON = "application/json"
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [1 if chr(byte) in "[{" else -1 for byte in range(256)]
_SUSPICIOUS = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_UNTOLD = re.compile("[\x00\ud800-\udfff]")
_LONGEST_NUMBER = 400
_LARGE_NUMBER = re.compile(rb"[0-9]{100}|[0-9][eE]\+?[0-9]{3}")  # no other is too large for a float, or too long


def read_json(body: bytes, limits: RequestLimits = USUAL) -> Any:
    """The value. Raises RequestRefused (400)."""
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
        raise _refused("a text has a NUL, or half of a surrogate pair")
    return value


def depth(body: bytes) -> int:
    """How deep lists and objects are inside each other, without following them: no body can make this fail."""
    quoted = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is between every other two quotes is a text
    brackets = b"".join(quoted.split(b'"')[::2]).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def check_media_type(content_type: str | None, taken: Sequence[str] = (JSON,)) -> None:
    """Raises RequestRefused (415). Other types than JSON are what a form of a foreign page could send."""
    if content_type == JSON and JSON in taken:
        return  # as most say it
    media, _, parameters = (content_type or "").partition(";")
    charset = re.search(r"charset\s*=\s*\"?([\w-]+)", parameters, re.IGNORECASE | re.ASCII)
    is_utf8 = charset is None or charset[1].lower() in ("utf-8", "utf8")
    if media.strip().lower() not in taken or not is_utf8:
        raise RequestRefused(Fault.UNSUPPORTED_MEDIA_TYPE, f"send {' or '.join(taken)} in UTF-8", accept=list(taken))


def choose_media_type(accept: str | None, offered: Sequence[str]) -> str:
    """The offer that Accept likes best, the first of equals. Raises RequestRefused (406)."""
    if accept is None or not accept.strip():
        return offered[0]
    ranges = [_range(part) for part in accept[:4_096].split(",") if part.strip()]
    liked = [(_quality(offer, ranges), offer) for offer in offered]
    quality, best = max(liked, key=lambda pair: pair[0])
    if quality <= 0:
        raise RequestRefused(Fault.NOT_ACCEPTABLE, f"this is offered as {' or '.join(offered)}", offered=list(offered))
    return best


def _range(part: str) -> tuple[str, float]:
    media, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
    return media, float(quality) if re.fullmatch(r"[01](\.\d{0,3})?", quality, re.ASCII) else 0.0


def _quality(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """By the narrowest range that it fits."""
    known = dict(reversed(ranges))
    family = f"{offer.partition('/')[0]}/*"
    return next((known[each] for each in (offer, family, "*/*") if each in known), 0.0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(name for name, _ in pairs)  # once: a large body has hundreds of thousands of them
        twice = next(name for name, times in counted.items() if times > 1)
        raise _refused(f"an object has {twice[:60]!r} twice")
    return found


def _constant(word: str) -> Any:
    raise _refused(f"{word} is no JSON number")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _refused(f"{digits[:60]} is too large for a number")
    return value


def _int(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise _refused(f"a number has {len(digits):,} digits, more than {_LONGEST_NUMBER}; give it as text")
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
    return RequestRefused(Fault.INVALID_JSON, detail)


_USUAL = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_CAREFUL = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int)
