"""Times for people: read from the command line, shown in local time with their distance from now."""

import re
import time
from datetime import datetime

from ade.core.errors import InvalidFilter
from ade.insight.reasons import short_span, span

_UNITS_S = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LONGEST, _MOST_S = 100, 1e12
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|sec|s|min|m|h|d|w)")


def now_ms() -> int:
    """By the clock of this machine, which distances are told by."""
    return time.time_ns() // 1_000_000


def seconds_of(text: str) -> float | None:
    """A length of time: `90`, `90s`, `1h30m`, `2d`. None when it is none."""
    stripped = text.strip().lower()
    if len(stripped) > _LONGEST:
        return None
    try:
        plain = float(stripped)
    except ValueError:
        parts = _PART.findall(stripped)
        is_whole = bool(parts) and _PART.sub("", stripped).strip() == ""
        plain = sum(float(count) * _UNITS_S[unit] for count, unit in parts) if is_whole else -1.0
    return plain if 0 <= plain < _MOST_S else None


def moment_ms(text: str, *, now: int) -> int:
    """A moment in the past: how long ago (`2h`), or a date and time; without a time zone it is local time."""
    ago = seconds_of(text)
    if ago is not None:
        return max(now - round(ago * 1000), 0)
    try:
        return max(round(datetime.fromisoformat(text.strip()[:_LONGEST]).timestamp() * 1000), 0)
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


def distance(at_ms: int, *, now: int) -> str:
    """How far a moment is from now: `5 s ago`, `in 2 h`."""
    away = now - at_ms
    return f"{short_span(away)} ago" if away >= 0 else f"in {short_span(-away)}"


def local_with_distance(at_ms: int | None, *, now: int) -> str:
    return "" if at_ms is None else f"{local(at_ms)} ({distance(at_ms, now=now)})"


__all__ = [
    "clock_time",
    "distance",
    "local",
    "local_with_distance",
    "moment_ms",
    "now_ms",
    "seconds_of",
    "short_span",
    "span",
]
