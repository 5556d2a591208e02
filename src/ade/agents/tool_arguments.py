"""What an agent gives to a tool, checked: it may be anything. All raise InvalidArguments, in words for the agent."""

import math
from collections.abc import Mapping, Sequence

from ade.core.errors import InvalidArguments

_SHOWN = 60


def texts(given: Mapping[str, object]) -> dict[str, str]:
    """Those that were given. Nothing and null are the same."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise _wrong(name, "a text", value)
        if isinstance(value, str) and not _is_unicode(value):
            raise InvalidArguments(f"{name} has characters that stand for nothing: half a surrogate pair")
    return {name: value for name, value in given.items() if isinstance(value, str)}


def required(tool: str, given: Mapping[str, str | None]) -> None:
    if missing := [name for name, value in given.items() if not (value or "").strip()]:
        raise InvalidArguments(
            f"{tool} tool missing required parameter{'s' * (len(missing) > 1)}: {', '.join(missing)}"
        )


def words(name: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        raise _wrong(name, "a list of texts", value)
    if not all(isinstance(word, str) and _is_unicode(word) for word in value):
        raise _wrong(name, "a list of texts", value)
    return tuple(value)


def whole(name: str, value: object, least: int, most: int | None = None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise _wrong(name, f"a whole number {bounds}", value)
    return value


def flags(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, bool):
            raise _wrong(name, "true or false", value)


def milliseconds(name: str, value: object, default: int) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise _wrong(name, "a number of milliseconds", value)
    return value


def _wrong(name: str, wanted: str, value: object) -> InvalidArguments:
    return InvalidArguments(f"{name} must be {wanted}, not {repr(value)[:_SHOWN]}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
