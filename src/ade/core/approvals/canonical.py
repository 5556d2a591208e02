"""One text for one meaning: JSON in the canonical form of RFC 8785, and its SHA-256."""

import hashlib
import math
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring

from ade.core.approvals.refusals import InvalidSubject

MOST_EXACT = 2**53 - 1  # beyond it two whole numbers are one floating point number, and would be one text
_LEAST_PLAIN, _MOST_PLAIN = -7, 21  # exponents between which a number is written without one


def digest_of(subject: Mapping[str, object]) -> str:
    """SHA-256 over everything that matters, in hexadecimal digits. Raises InvalidSubject."""
    return hashlib.sha256(canonical(subject)).hexdigest()


def canonical(value: object) -> bytes:
    """The one way to write this JSON value. Raises InvalidSubject for what has none."""
    try:
        return _written(value).encode()
    except UnicodeEncodeError:
        raise InvalidSubject("a text has half of a surrogate pair in it, which no JSON text can have") from None
    except RecursionError:
        raise InvalidSubject("it is nested too deeply to be written down") from None


def _written(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return _whole(value)
        case float():
            return _number(value)  # also one above 2^53: it is what it says
        case list() | tuple():
            return f"[{','.join(_written(each) for each in value)}]"
        case Mapping():
            return _object(value)
    raise InvalidSubject(f"{type(value).__name__} is no JSON value; give text, numbers, lists and objects")


def _object(value: Mapping[object, object]) -> str:
    """Names in the order of their UTF-16 units, as RFC 8785 wants it."""
    for name in value:
        if not isinstance(name, str):
            raise InvalidSubject(f"the names in a JSON object are text, not {name!r:.60}")
    names = sorted((name for name in value if isinstance(name, str)), key=lambda name: name.encode("utf-16-be"))
    return f"{{{','.join(f'{_text(name)}:{_written(value[name])}' for name in names)}}}"


def _text(value: str) -> str:
    """With as few escapes as JSON allows."""
    return encode_basestring(value)


def _whole(value: int) -> str:
    if abs(value) > MOST_EXACT:
        raise InvalidSubject(f"{value} is above 2^53: many programs would round it; give it as text")
    return str(value)


def _number(value: float) -> str:
    """As ECMAScript writes it: the fewest digits that mean this number, with an exponent only far from one."""
    if not math.isfinite(value):
        raise InvalidSubject(f"{value} is no JSON number")
    if value == 0:
        return "0"  # also what is below zero by sign alone
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)  # it is finite
    text = "".join(str(digit) for digit in digits)
    return "-" * sign + _placed(text.rstrip("0"), len(text) + exponent)


def _placed(digits: str, point: int) -> str:
    """The digits with the point behind so many of them."""
    if _LEAST_PLAIN < point - 1 < _MOST_PLAIN:
        if point <= 0:
            return f"0.{'0' * -point}{digits}"
        if point >= len(digits):
            return digits + "0" * (point - len(digits))
        return f"{digits[:point]}.{digits[point:]}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{rest}e{point - 1:+d}"
