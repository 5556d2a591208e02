"""Places in traces: read and written as W3C Trace Context has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.common.trace_context import SpanContext, environment_of_trace, read_trace, written_trace

PLACES = st.builds(
    SpanContext,
    st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}"),
    st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}"),
    st.booleans(),
)
GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@given(PLACES)
def test_what_is_written_is_read_again(place: SpanContext) -> None:
    assert read_trace(written_trace(place)) == place
    assert environment_of_trace(written_trace(place)) == {"TRACEPARENT": written_trace(place)}


@given(st.text())
def test_any_text_is_a_place_or_none(text: str) -> None:
    place = read_trace(text)
    assert place is None or read_trace(written_trace(place)) == place


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "",
        GOOD.upper(),
        GOOD[:-1],
        f"{GOOD}-more",
        f"ff{GOOD[2:]}",
        GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        GOOD.replace("00f067aa0ba902b7", "0" * 16),
    ],
)
def test_what_is_none_leads_to_nothing(wrong: str | None) -> None:
    assert read_trace(wrong) is None
    assert environment_of_trace(wrong) == {}


def test_later_versions_may_say_more() -> None:
    assert read_trace(f"01{GOOD[2:]}-more") == read_trace(GOOD)


def test_a_child_is_of_the_same_trace() -> None:
    place = read_trace(GOOD)
    assert place is not None
    assert place.child("1" * 16) == SpanContext(place.trace_id, "1" * 16, True)
