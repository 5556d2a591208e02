"""Python values to JSON and back. What JSON cannot carry faithfully is refused, never bent."""

import math
import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

# Kept as they are while types are checked, so that bytes given for a `str` are noticed before they become text.
_KEPT = (bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)
SCALARS = frozenset({str, int, float, bool, type(None)})
CODING_ERRORS = (TypeError, ValueError, RecursionError, OverflowError)

MOST_NESTED = 200  # levels of lists and objects
_encoder = msgspec.json.Encoder()


def to_plain(value: object) -> Any:
    """The value with structs, models, sets and the like turned into dicts, lists and scalars."""
    return msgspec.to_builtins(value, builtin_types=_KEPT, enc_hook=_encode_foreign)


def to_json(plain: object) -> Raw:
    """Compact JSON. Raises ValueError for NaN and Infinity, which JSON does not have, and for very deep nesting."""
    encoded = _encoder.encode(plain)
    # msgspec writes NaN and Infinity as null, so only text with a null in it can hide one.
    if b"null" in encoded and any(not math.isfinite(number) for number in _floats(plain)):
        raise ValueError("NaN and Infinity cannot be sent as JSON")
    if encoded.count(b"[") + encoded.count(b"{") > MOST_NESTED and _is_too_deep(plain):
        raise ValueError(f"nested more than {MOST_NESTED} levels deep")
    return Raw(encoded)


def _is_too_deep(plain: object) -> bool:
    """Level by level, because recursion is what deep nesting breaks."""
    level = [plain]
    for _ in range(MOST_NESTED):
        level = [inner for value in level for inner in _inside(value) if isinstance(inner, dict | list | tuple)]
    return bool(level)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _floats(plain: object) -> Iterator[float]:
    """All floats inside; iterative, because nesting may be deep."""
    rest: list[object] = [plain]
    while rest:
        value = rest.pop()
        if isinstance(value, float):
            yield value
        elif isinstance(value, dict):
            rest.extend(value)
            rest.extend(value.values())
        elif isinstance(value, list | tuple):
            rest.extend(value)


def is_model(kind: object) -> bool:
    """Whether this is a pydantic model class. Pydantic is never imported for it: who uses models has done so."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def is_readable(kind: object) -> bool:
    """Whether a type that msgspec does not know can be read by `decode_foreign`."""
    return is_model(kind) or (isinstance(kind, type) and issubclass(kind, PurePath))


def _encode_foreign(value: object) -> object:
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)  # type: ignore[attr-defined] # a model
    if isinstance(value, PurePath):
        return str(value)
    for scalar in (str, float, int):  # their subclasses, such as NumPy's float64
        if isinstance(value, scalar):
            return scalar(value)
    raise TypeError(f"a value of type {type(value).__qualname__} cannot be sent as JSON")


def decode_foreign(kind: Any, plain: object) -> object:
    """Read a pydantic model by its own rules, or a path."""
    if is_model(kind):
        return _read_model(kind, plain)
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(plain, str):
        return kind(plain)
    raise TypeError(f"expected `{getattr(kind, '__qualname__', kind)}`, got `{type(plain).__name__}`")


def _read_model(model: Any, plain: object) -> object:
    from pydantic import ValidationError

    try:
        return model.model_validate(plain)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc'])) or model.__name__}: {fault['msg']}" for fault in error.errors())
        raise ValueError("; ".join(faults)) from None
