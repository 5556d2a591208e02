"""Moments in the payloads of events: found by a table, written for others, and the same again when they are read."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.events.model import MOMENTS, Event, with_moments
from ade.events.sse import event_block
from ade.server.wire_format import from_wire, is_moment, to_wire, write_time
from ade.webhooks.deliveries import body_of
from ade.webhooks.model import TYPES
from docs.generators.events import EVENTS, FIELDS
from tests.domain import LAST_MOMENT

AT = st.integers(0, LAST_MOMENT)


def holding(kind: str, at: int) -> Event:
    """An event of this type with all the moments it may have, and something else beside them."""
    payload: dict[str, object] = {"queue": "mail", "delay_ms": 1_790_000_000_000}
    for *outer, name in MOMENTS.get(kind, ()):
        inside = payload
        for each in outer:
            inside = inside.setdefault(each, {"digest": "d"})  # type: ignore[assignment]
        inside[name] = at
    return Event(type=kind, at=at, payload=payload, seq=1)


def test_the_table_names_what_the_reference_calls_a_moment() -> None:
    assert set(MOMENTS) <= TYPES
    for kind, told in EVENTS.items():
        fields = {*told.always, *told.sometimes}
        listed = {place[0] for place in MOMENTS.get(kind, ())}
        assert listed <= fields, kind
        assert {name for name in fields if is_moment(name)} <= listed, kind
        assert {name for name in fields if "moment" in FIELDS[name]} == listed, kind


@given(st.sampled_from(sorted(TYPES)), AT)
def test_an_event_is_the_same_again_when_it_was_sent(kind: str, at: int) -> None:
    event = holding(kind, at)

    wired = to_wire(event)

    assert from_wire(msgspec.convert(msgspec.to_builtins(wired), type(wired)), Event) == event


@given(st.sampled_from(sorted(MOMENTS)), st.integers(1_600_000_000_000, LAST_MOMENT))
def test_a_stream_tells_no_moment_in_milliseconds(kind: str, at: int) -> None:
    text = event_block(holding(kind, at)).decode()
    [data] = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]

    assert str(at) not in data.replace('"delay_ms":1790000000000', "")
    assert data.count(write_time(at)) == 1 + len(MOMENTS[kind])


def test_a_webhook_is_told_of_moments_as_everybody_is() -> None:
    rotated = Event(type="webhook.secret_rotated", at=0, payload={"webhook": "w", "ends_at": 1_760_000_000_120}, seq=1)

    assert json.loads(body_of(rotated))["data"]["ends_at"] == "2025-10-09T08:53:20.120Z"


@pytest.mark.parametrize("value", [None, "soon", -1, LAST_MOMENT + 1, 1.5, True, [1], {"a": 1}])
def test_what_is_no_moment_is_shown_as_it_is(value: object) -> None:
    """As in an audit copy that somebody has changed."""
    event = Event(type="token.created", at=0, payload={"expires_at": value}, seq=1)

    assert msgspec.to_builtins(to_wire(event))["payload"] == {"expires_at": value}


def test_a_payload_without_moments_is_not_copied() -> None:
    payload: dict[str, object] = {"worker": "w"}

    assert with_moments("task.claimed", payload, str) is payload
    assert with_moments("task.created", payload, str) is payload
