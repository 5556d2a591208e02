"""Values of options that need more than click's own types."""

from datetime import datetime
from typing import Any

import click
import msgspec

from ade.cli.times import seconds_of


class Duration(click.ParamType[float]):
    """A length of time in seconds: `90`, `90s`, `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(value) if isinstance(value, int | float) else seconds_of(value)
        if seconds is None:
            self.fail(f"{value!r} is no length of time: write seconds, or 90s, 5m, 1h30m, 2d", param, ctx)
        return seconds


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


class Moment(click.ParamType[datetime]):
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
PLACE = click.IntRange(0, 2**63 - 1)  # a cursor or a seq: what a store can count up to
MOMENT = Moment()
JSON_OBJECT = JsonObject()
