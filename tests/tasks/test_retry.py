"""Backoff and growing time limits, to the millisecond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.failures import Backoff, grown_timeout_ms
from tests.tasks.factories import MIDDLE

backoffs = st.builds(
    Backoff,
    base_ms=st.integers(0, 10_000_000),
    multiplier=st.one_of(st.integers(1, 1000), st.floats(1, 1000)),
    cap_ms=st.integers(10_000_000, 253_402_300_799_000),
    jitter=st.floats(0, 1),
)
randomness = st.floats(0, 1, exclude_max=True)
counts = st.one_of(st.integers(1, 1000), st.integers(1, 10**18))


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [
        (1, 1),
        (2, 2),
        (3, 4),
        (4, 8),
        (5, 16),
        (6, 32),
        (7, 64),
        (8, 128),
        (9, 256),
        (10, 300),
        (11, 300),
        (1000, 300),
    ],
)
def test_the_default_waits_1_2_4_seconds_and_so_on_up_to_300(failures: int, seconds: int) -> None:
    assert Backoff().delay_ms(failures, MIDDLE) == seconds * 1000


def test_jitter_spreads_by_a_tenth_to_both_sides() -> None:
    assert Backoff().delay_ms(1, 0.0) == 900
    assert Backoff().delay_ms(1, 0.25) == 950
    assert Backoff().delay_ms(1, 0.75) == 1050
    assert Backoff().delay_ms(10, 0.0) == 270_000
    assert Backoff().delay_ms(10, 0.999999999) == 330_000


def test_full_jitter_spreads_from_nothing_to_twice_the_delay() -> None:
    full = Backoff(jitter=1.0)

    assert (full.delay_ms(1, 0.0), full.delay_ms(1, MIDDLE)) == (0, 1000)


@given(backoff=backoffs, failures=counts, roll=randomness)
def test_every_delay_lies_within_its_jitter_of_the_plain_one(backoff: Backoff, failures: int, roll: float) -> None:
    plain = Backoff(base_ms=backoff.base_ms, multiplier=backoff.multiplier, cap_ms=backoff.cap_ms, jitter=0.0).delay_ms(
        failures, roll
    )

    delay = backoff.delay_ms(failures, roll)

    assert 0 <= plain <= backoff.cap_ms
    rounding = 1 + plain * 1e-12
    assert plain * (1 - backoff.jitter) - rounding <= delay <= plain * (1 + backoff.jitter) + rounding


@given(backoff=backoffs, failures=counts)
def test_a_further_failure_never_shortens_the_delay(backoff: Backoff, failures: int) -> None:
    assert backoff.delay_ms(failures + 1, MIDDLE) >= backoff.delay_ms(failures, MIDDLE)


@pytest.mark.parametrize("multiplier", [2, 2.0, 1000, 1.0000001])
def test_a_huge_count_overflows_nothing_and_ends_at_the_cap(multiplier: float) -> None:
    assert Backoff(multiplier=multiplier).delay_ms(10**15, MIDDLE) == 300_000


@given(failures=counts)
def test_a_base_of_nothing_stays_nothing_however_often_it_fails(failures: int) -> None:
    assert Backoff(base_ms=0, multiplier=1000.0).delay_ms(failures, MIDDLE) == 0


def test_a_multiplier_of_one_waits_the_same_every_time() -> None:
    flat = Backoff(base_ms=250, multiplier=1.0)

    assert {flat.delay_ms(failures, MIDDLE) for failures in (1, 2, 50, 10**9)} == {250}


@pytest.mark.parametrize(
    ("timeouts", "limit_ms"),
    [(0, 1000), (1, 1500), (2, 2250), (3, 3375), (4, 4000), (5, 4000), (10**9, 4000)],
)
def test_the_time_limit_grows_by_half_after_each_time_out_up_to_four_times(timeouts: int, limit_ms: int) -> None:
    assert grown_timeout_ms(1000, timeouts) == limit_ms


@given(timeout_ms=st.integers(1, 253_402_300_799_000), timeouts=st.integers(0, 10**18))
def test_a_grown_limit_is_never_shorter_and_never_over_four_times(timeout_ms: int, timeouts: int) -> None:
    grown = grown_timeout_ms(timeout_ms, timeouts)

    assert timeout_ms <= grown <= 4 * timeout_ms
    assert grown <= grown_timeout_ms(timeout_ms, timeouts + 1)
