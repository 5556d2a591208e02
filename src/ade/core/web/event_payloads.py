"""Events as the API writes them: the moments in their payloads as RFC 3339 text, like all others."""

from typing import Any

from msgspec import structs

from ade.core.admission import LAST_MOMENT
from ade.core.event_moments import MOMENTS, with_moments
from ade.core.events import Event
from ade.core.web.times import read_time, write_time


def event_outside(event: Event) -> Event:
    """The event as others are told of it."""
    told = with_moments(event.type, event.payload, _written)
    return event if told is event.payload else structs.replace(event, payload=told)


def event_inside(event: Event) -> Event:
    """The event again. Raises ValueError for a time that is none."""
    read = with_moments(event.type, event.payload, _read)
    return event if read is event.payload else structs.replace(event, payload=read)


def _written(value: object) -> object:
    """What is no moment stays as it is: an audit copy may hold anything, and must be shown all the same."""
    return write_time(value) if type(value) is int and 0 <= value <= LAST_MOMENT else value


def _read(value: object) -> object:
    return read_time(value) if isinstance(value, str) else value


def payload_schema() -> dict[str, Any]:
    """What can be said of the payloads of all types: which of their fields are moments."""
    moment = {"type": "string", "format": "date-time"}
    properties: dict[str, Any] = {}
    for place in sorted({place for places in MOMENTS.values() for place in places}):
        *outer, name = place
        inside = properties
        for each in outer:
            inside = inside.setdefault(each, {"type": "object", "properties": {}})["properties"]
        inside[name] = moment
    return {"properties": properties}
