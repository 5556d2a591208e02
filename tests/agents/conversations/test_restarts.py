"""What fails is tried again, but not without end in a short time, and never not at all."""

from hypothesis import given
from hypothesis import strategies as st

from ade.agents.conversations.rules import (
    FRESH,
    RestartLimits,
    Restarts,
    failed,
    inherited,
    is_forgotten,
    is_resting,
    next_try,
    succeeded,
)
from ade.failures import Backoff

LIMITS = RestartLimits()
AT_ONCE = RestartLimits(pause=Backoff(base_ms=0, cap_ms=0))


def fail_times(count: int, limits: RestartLimits = AT_ONCE, start: int = 1_000, apart: int = 10) -> Restarts:
    """So many failures, each followed by a success except the last."""
    restarts = FRESH
    for number in range(count):
        restarts = failed(succeeded(restarts), limits, start + number * apart)
    return restarts


def test_what_never_failed_may_be_tried_at_once() -> None:
    assert next_try(FRESH, LIMITS) == 0
    assert not is_resting(FRESH, LIMITS, 0)


def test_pauses_double_until_the_fifth_in_a_row_rests_for_a_window() -> None:
    restarts, pauses, now = FRESH, [], 1_000
    for _ in range(6):
        restarts = failed(restarts, LIMITS, now)
        pauses.append(next_try(restarts, LIMITS) - now)
        now = next_try(restarts, LIMITS)

    assert pauses == [500, 1_000, 2_000, 4_000, 60_000, 60_000]


def test_a_success_ends_the_row() -> None:
    restarts = FRESH
    for number in range(4):
        restarts = failed(restarts, AT_ONCE, number)

    after = failed(succeeded(restarts), AT_ONCE, 10)
    assert after.in_a_row == 1
    assert not is_resting(after, AT_ONCE, 10)


def test_successes_in_between_do_not_empty_the_window() -> None:
    assert not is_resting(fail_times(9), AT_ONCE, 1_080)

    full = fail_times(10)
    assert is_resting(full, AT_ONCE, 1_090)
    assert next_try(full, AT_ONCE) == 61_000  # when the first of them leaves the window
    assert not is_resting(full, AT_ONCE, 61_000)


def test_a_row_of_failures_elsewhere_is_a_reason_to_rest_first() -> None:
    """It may be the batch that ended those who had it before."""
    assert inherited(FRESH, 4, LIMITS, 1_000) == FRESH

    poisoned = inherited(FRESH, 5, LIMITS, 1_000)
    assert next_try(poisoned, LIMITS) == 61_000
    assert inherited(poisoned, 6, LIMITS, 61_000) == poisoned  # its rest is not begun anew


def test_it_is_forgotten_when_nothing_counts_any_more() -> None:
    restarts = failed(FRESH, LIMITS, 1_000)
    assert not is_forgotten(restarts, LIMITS, 100_000)  # the row goes on
    assert not is_forgotten(succeeded(restarts), LIMITS, 60_999)
    assert is_forgotten(succeeded(restarts), LIMITS, 61_000)


limits_of_all_sorts = st.builds(
    RestartLimits,
    most=st.integers(1, 12),
    window_ms=st.integers(1, 1_000),
    most_in_a_row=st.integers(1, 12),
    pause=st.builds(Backoff, base_ms=st.integers(0, 50), cap_ms=st.integers(0, 200)),
)
tries = st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.floats(0, 0.999)), max_size=80)


@given(limits=limits_of_all_sorts, tries=tries)
def test_whoever_waits_until_the_next_try_keeps_both_limits_and_never_waits_for_ever(
    limits: RestartLimits, tries: list[tuple[bool, int, float]]
) -> None:
    restarts, now, failures, in_a_row = FRESH, 0, list[int](), 0
    for is_success, later, randomness in tries:
        allowed = next_try(restarts, limits, randomness)
        assert allowed <= max(now, 0) + max(limits.window_ms, limits.pause.cap_ms * 1.1 + 1)
        now = max(now, allowed) + later
        assert not is_resting(restarts, limits, now)
        if is_success:
            restarts, in_a_row = succeeded(restarts), 0
            continue
        if in_a_row >= limits.most_in_a_row:
            assert now >= failures[-1] + limits.window_ms
        restarts, in_a_row = failed(restarts, limits, now), in_a_row + 1
        failures.append(now)
        assert len(restarts.failed_at) <= limits.most
    for first, beyond in zip(failures, failures[limits.most :], strict=False):
        assert beyond - first >= limits.window_ms
