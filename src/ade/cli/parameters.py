"""Option types (durations, timestamps, JSON), and the formatting of times relative to now."""

import re
import time
from datetime import datetime
from typing import Any

import click
import msgspec

from ade.errors import InvalidFilter
from ade.events.model import Event, with_moments
from ade.locks.model import read_priority
from ade.tasks.reasons import short_span

_UNITS_S = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LONGEST, _MOST_S = 100, 1e12
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|sec|s|min|m|h|d|w)")


def now_ms() -> int:
    """Return the current time of this machine, in ms."""
    return time.time_ns() // 1_000_000


def seconds_of(text: str) -> float | None:
    """Parse a duration: `90`, `90s`, `1h30m`, `2d`. Returns None if it is invalid."""
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
    """Parse a past moment: an age (`2h`), or a date and time, local unless it has a time zone. Raises InvalidFilter."""
    ago = seconds_of(text)
    if ago is not None:
        return max(now - round(ago * 1000), 0)
    try:
        return max(round(datetime.fromisoformat(text.strip()[:_LONGEST]).timestamp() * 1000), 0)
    except (ValueError, OverflowError, OSError):
        raise InvalidFilter(
            f"{text[:60]!r} is not a time: write how long ago (30m, 2h, 7d) or a date (2026-01-31, 2026-01-31T12:00)"
        ) from None


def local(at_ms: int | None) -> str:
    """Format a local date and time, to the second."""
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def local_payload(event: Event) -> dict[str, object]:
    """Return the payload of an event for display: timestamps in local time, without empty values."""
    payload = with_moments(event.type, event.payload, lambda value: local(value) if isinstance(value, int) else value)
    return {name: value for name, value in payload.items() if value}


def clock_time(at_ms: int) -> str:
    """Format the local time of day, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1000).strftime("%H:%M:%S.%f")[:-3]


def distance(at_ms: int, *, now: int) -> str:
    """Format the distance of a moment from now: `5 s ago`, `in 2 h`."""
    away = now - at_ms
    return f"{short_span(away)} ago" if away >= 0 else f"in {short_span(-away)}"


def local_with_distance(at_ms: int | None, *, now: int) -> str:
    """Format a local date and time with its distance from now; empty for None."""
    return "" if at_ms is None else f"{local(at_ms)} ({distance(at_ms, now=now)})"


class Duration(click.ParamType[float]):
    """A duration in seconds: `90`, `90s`, `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(value) if isinstance(value, int | float) else seconds_of(value)
        if seconds is None:
            self.fail(f"{value!r} is no length of time: write seconds, or 90s, 5m, 1h30m, 2d", param, ctx)
        return seconds


class PriorityParam(click.ParamType[int]):
    """A priority: 0 to 9, or urgent, high, normal, or low."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return read_priority(int(value) if isinstance(value, str) and value.strip().isdecimal() else value)


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            decoded = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            self.fail(f"this is no JSON: {error}", param, ctx)
        if not isinstance(decoded, dict):
            self.fail('arguments are a JSON object of named values, such as {"width": 400}', param, ctx)
        return decoded


class Timestamp(click.ParamType[datetime]):
    """A date and time; without a time zone it is local time."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no date and time: write 2026-01-31, or 2026-01-31T12:00+01:00", param, ctx)


DURATION = Duration()
PRIORITY = PriorityParam()
PLACE = click.IntRange(0, 2**63 - 1)  # a cursor or a seq, up to the maximum of a store
MOMENT = Timestamp()
JSON_OBJECT = JsonObject()
