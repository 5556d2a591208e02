"""Times for people: read from the command line, shown in local time with their distance from now."""

import re
from datetime import datetime

from ade.core.errors import InvalidFilter
from ade.insight.reasons import span

_UNITS_S = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|sec|s|min|m|h|d|w)")


def seconds_of(text: str) -> float | None:
    """A length of time: `90`, `90s`, `1h30m`, `2d`. None when it is none."""
    stripped = text.strip().lower()
    try:
        plain = float(stripped)
    except ValueError:
        parts = _PART.findall(stripped)
        is_whole = bool(parts) and _PART.sub("", stripped).strip() == ""
        return sum(float(count) * _UNITS_S[unit] for count, unit in parts) if is_whole else None
    return plain if 0 <= plain < 1e12 else None


def moment_ms(text: str, *, now: int) -> int:
    """A moment in the past: how long ago (`2h`), or a date and time; without a time zone it is local time."""
    ago = seconds_of(text)
    if ago is not None:
        return max(now - round(ago * 1000), 0)
    try:
        return round(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidFilter(
            f"{text[:60]!r} is no time: write how long ago (30m, 2h, 7d) or a date (2026-01-31, 2026-01-31T12:00)"
        ) from None


def local(at_ms: int | None) -> str:
    """Local date and time, to the second."""
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def clock_time(at_ms: int) -> str:
    """Local time of day, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1000).strftime("%H:%M:%S.%f")[:-3]


def short_span(ms: int) -> str:
    """A length of time in its largest unit: `3 min`."""
    seconds = max(ms, 0) / 1000
    for unit, size, smaller in (("d", 86_400, 3600), ("h", 3600, 60), ("min", 60, 1)):
        if seconds >= size - smaller / 2:  # 59.8 min are an hour, not 60 min
            return f"{seconds / size:.0f} {unit}"
    if seconds < 1:
        return f"{max(ms, 0)} ms"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def distance(at_ms: int, *, now: int) -> str:
    """How far a moment is from now: `5 s ago`, `in 2 h`."""
    away = now - at_ms
    return f"{short_span(away)} ago" if away >= 0 else f"in {short_span(-away)}"


def local_with_distance(at_ms: int | None, *, now: int) -> str:
    return "" if at_ms is None else f"{local(at_ms)} ({distance(at_ms, now=now)})"


__all__ = ["clock_time", "distance", "local", "local_with_distance", "moment_ms", "seconds_of", "short_span", "span"]
