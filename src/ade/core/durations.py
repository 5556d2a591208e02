"""Lengths of time as people write them in rules: `90s`, `15m`, `4h`, `7d`, `1h30m`."""

import re

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d{1,12}(?:ms|s|m|h|d))+", re.ASCII)


def read_duration(text: str) -> int | None:
    """Milliseconds; None for what is no length of time. A bare number is none: nobody could tell its unit."""
    compact = "".join(text.lower().split())
    if not _WHOLE.fullmatch(compact):
        return None
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(compact))


def written_duration(ms: int) -> str:
    """In the largest unit that needs no fraction; `read_duration` reads it back."""
    unit = next(unit for unit, size in _UNITS_MS.items() if ms % size == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}"
