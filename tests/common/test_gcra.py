"""Rate limits: a burst of `count`, then a steady pace, and never more than that over any stretch of time."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.common.gcra import RateState, available, next_allowed_ms, possible, take
from tests.tasks.factories import NOW

UNTOUCHED = RateState(0)
counts = st.one_of(st.integers(1, 20), st.integers(1, 5_000_000))
periods = st.one_of(st.integers(1, 2_000), st.integers(1, 86_400_000))


def test_after_a_rest_the_whole_count_may_start_at_once_and_then_one_by_one() -> None:
    assert available(UNTOUCHED, count=4, period_ms=1000, now_ms=NOW) == 4

    state = take(UNTOUCHED, 4, count=4, period_ms=1000, now_ms=NOW)

    later = {0: 0, 249: 0, 250: 1, 500: 2, 999: 3, 1000: 4}
    assert {ms: available(state, count=4, period_ms=1000, now_ms=NOW + ms) for ms in later} == later
    assert available(state, count=4, period_ms=1000, now_ms=NOW + 60_000) == 4
    assert next_allowed_ms(state, count=4, period_ms=1000, now_ms=NOW) == NOW + 250


def test_a_part_of_the_count_leaves_the_rest_for_now() -> None:
    state = take(UNTOUCHED, 3, count=4, period_ms=1000, now_ms=NOW)

    assert available(state, count=4, period_ms=1000, now_ms=NOW) == 1
    assert next_allowed_ms(state, count=4, period_ms=1000, now_ms=NOW) == NOW


def test_a_clock_that_went_back_allows_nothing_early_and_heals_by_itself() -> None:
    state = take(UNTOUCHED, 4, count=4, period_ms=1000, now_ms=NOW)

    assert available(state, count=4, period_ms=1000, now_ms=NOW - 60_000) == 0
    assert next_allowed_ms(state, count=4, period_ms=1000, now_ms=NOW - 60_000) == NOW + 250


def test_a_state_from_before_the_clock_went_back_has_room_for_one_and_is_right_again() -> None:
    rate = {"count": 4, "period_ms": 1000, "now_ms": NOW - 60_000}
    full = take(UNTOUCHED, 4, count=4, period_ms=1000, now_ms=NOW)
    assert possible(full, count=4, period_ms=1000, now_ms=NOW) == full

    believed = possible(full, **rate)

    assert available(believed, **rate) == 1
    used = take(believed, 1, **rate)
    assert possible(used, **rate) == used
    assert next_allowed_ms(used, **rate) == NOW - 60_000 + 250


@pytest.mark.parametrize(("count", "period_ms"), [(1500, 1000), (7, 1000), (3, 1), (600, 1), (2_000_000, 1000)])
def test_a_count_that_does_not_divide_the_period_is_still_the_exact_burst(count: int, period_ms: int) -> None:
    assert available(UNTOUCHED, count=count, period_ms=period_ms, now_ms=NOW) == count

    state = UNTOUCHED
    for _ in range(min(count, 2000)):
        state = take(state, 1, count=count, period_ms=period_ms, now_ms=NOW)

    assert available(state, count=count, period_ms=period_ms, now_ms=NOW) == max(count - 2000, 0)


@given(count=counts, period_ms=periods, share=st.floats(0, 1))
def test_taking_some_leaves_exactly_the_others(count: int, period_ms: int, share: float) -> None:
    taken = int(count * share)

    state = take(UNTOUCHED, taken, count=count, period_ms=period_ms, now_ms=NOW)

    assert available(state, count=count, period_ms=period_ms, now_ms=NOW) == count - taken


@given(count=counts, period_ms=periods, debt_us=st.integers(-10, 10**12))
def test_next_allowed_is_the_first_millisecond_at_which_something_is_available(
    count: int, period_ms: int, debt_us: int
) -> None:
    state = RateState(NOW * 1000 + debt_us)

    moment = next_allowed_ms(state, count=count, period_ms=period_ms, now_ms=NOW)

    assert moment >= NOW
    assert available(state, count=count, period_ms=period_ms, now_ms=moment) >= 1
    if moment > NOW:
        assert available(state, count=count, period_ms=period_ms, now_ms=moment - 1) == 0


@given(count=counts, period_ms=periods, debt_us=st.integers(-10, 10**12))
def test_no_more_than_the_count_is_ever_available(count: int, period_ms: int, debt_us: int) -> None:
    state = RateState(NOW * 1000 + debt_us)

    assert 0 <= available(state, count=count, period_ms=period_ms, now_ms=NOW) <= count


@given(
    count=st.integers(1, 12),
    period_ms=st.integers(1, 3_000),
    waits=st.lists(st.tuples(st.integers(0, 1_500), st.integers(0, 15)), max_size=60),
)
def test_over_any_stretch_of_time_no_more_starts_than_the_burst_and_the_pace_allow(
    count: int, period_ms: int, waits: list[tuple[int, int]]
) -> None:
    """Greedy workers take what they can get, whenever they come."""
    state, now, starts = UNTOUCHED, NOW, []
    for pause, wanted in waits:
        now += pause
        taken = min(wanted, available(state, count=count, period_ms=period_ms, now_ms=now))
        state = take(state, taken, count=count, period_ms=period_ms, now_ms=now)
        starts += [now] * taken

    for first, begin in enumerate(starts):
        for end in {begin, begin + period_ms, begin + 5 * period_ms, now}:
            within = bisect_right(starts, end) - first
            assert within <= count + (end - begin) * count // period_ms


@pytest.mark.parametrize(("count", "period_ms"), [(1500, 1000), (7, 1000), (70_000, 1000), (3, 1)])
def test_rounding_never_adds_a_start_however_long_the_queue_is_busy(count: int, period_ms: int) -> None:
    state, starts = UNTOUCHED, 0
    for now in range(NOW, NOW + 10 * period_ms + 1):
        taken = available(state, count=count, period_ms=period_ms, now_ms=now)
        state = take(state, taken, count=count, period_ms=period_ms, now_ms=now)
        starts += taken

    assert starts <= count + 10 * count


@given(count=st.integers(1, 200), period_ms=st.integers(200, 100_000))
def test_a_busy_queue_gets_the_whole_rate_it_was_promised(count: int, period_ms: int) -> None:
    """Rounding costs at most one start in a period, and only at high rates."""
    state = take(UNTOUCHED, count, count=count, period_ms=period_ms, now_ms=NOW)

    after_a_period = available(state, count=count, period_ms=period_ms, now_ms=NOW + period_ms)

    assert after_a_period >= count - 1
