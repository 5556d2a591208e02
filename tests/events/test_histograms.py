"""Histograms: nothing is lost when they are added up, and percentiles lie where they must."""

from hypothesis import given
from hypothesis import strategies as st

from ade.events.rollups import ATTEMPT_BOUNDS, MS_BOUNDS, Histogram, empty, quantile

VALUES = st.lists(st.integers(0, 10_000_000), max_size=50)
PARTS = st.floats(0, 1)


def noted(values: list[int]) -> Histogram:
    made = empty(MS_BOUNDS)
    for value in values:
        made.note(MS_BOUNDS, value)
    return made


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    made = empty(ATTEMPT_BOUNDS)
    for value in (1, 2, 4, 5, 21):
        made.note(ATTEMPT_BOUNDS, value)
    assert made == Histogram([1, 1, 0, 2, 0, 0, 1], 33)


@given(VALUES, VALUES)
def test_to_add_is_to_have_noted_all(one: list[int], other: list[int]) -> None:
    both = noted(one)
    both.add(noted(other))
    assert both == noted(one + other)
    assert both.count == len(one) + len(other)


@given(VALUES, PARTS)
def test_a_percentile_lies_in_the_bucket_of_the_value(values: list[int], part: float) -> None:
    found = quantile(MS_BOUNDS, noted(values), part)
    if not values:
        assert found is None
        return
    assert found is not None
    exact = sorted(values)[max(min(-int(-part * len(values) // 1), len(values)) - 1, 0)]
    place = next((n for n, bound in enumerate(MS_BOUNDS) if exact <= bound), len(MS_BOUNDS))
    low = MS_BOUNDS[place - 1] if place else 0
    high = MS_BOUNDS[min(place, len(MS_BOUNDS) - 1)]
    assert low - 1e-6 <= found <= high + 1e-6


@given(VALUES, PARTS, PARTS)
def test_percentiles_do_not_cross(values: list[int], one: float, other: float) -> None:
    low, high = (quantile(MS_BOUNDS, noted(values), part) for part in sorted((one, other)))
    assert low is None or high is None or low <= high


def test_halfway_through_a_bucket_is_halfway_between_its_bounds() -> None:
    assert quantile(MS_BOUNDS, noted([60] * 10), 0.5) == 75.0
