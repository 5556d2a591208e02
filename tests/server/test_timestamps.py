"""Moments are written in one way, and read only when they are beyond doubt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.server.wire_format import read_time, write_time
from tests.depth import examples
from tests.domain import LAST_MOMENT

FEW = settings(max_examples=examples(100))


@FEW
@given(st.integers(0, LAST_MOMENT))
def test_what_is_written_is_read_back(at: int) -> None:
    assert read_time(write_time(at)) == at


@FEW
@given(st.integers(0, LAST_MOMENT), st.integers(0, LAST_MOMENT))
def test_texts_sort_as_moments_do(one: int, other: int) -> None:
    assert (write_time(one) < write_time(other)) == (one < other)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.5z", 500),
        ("1970-01-01T01:00:00.001+01:00", 1),
        ("1969-12-31T23:30:00-00:30", 0),
        ("2026-01-31T12:00:00.123999999Z", 1_769_860_800_123),
        ("2024-02-29T00:00:00-00:00", 1_709_164_800_000),
        ("9999-12-31T23:59:59Z", LAST_MOMENT),
    ],
)
def test_times_with_their_offset_are_read(text: str, at: int) -> None:
    assert read_time(text) == at


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-01-31T12:00Z", "1769860800",
        "2026-1-31T12:00:00Z", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00+0100", "2026-01-31T12:00:00+1:00",
        "2026-02-30T12:00:00Z", "2025-02-29T12:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:00:60Z",
        "2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00+01:60", "0000-01-01T00:00:00Z", "12026-01-31T12:00:00Z",
        "2026-01-31T12:00:00Z\n", "\uff12\uff10\uff12\uff16-01-31T12:00:00Z", " 2026-01-31T12:00:00Z",
    ],
)  # fmt: skip
def test_what_is_in_doubt_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        read_time(text)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_what_is_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        read_time(text)


@pytest.mark.parametrize("at", [-1, LAST_MOMENT + 1])
def test_nothing_is_written_that_could_not_be_read(at: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        write_time(at)
