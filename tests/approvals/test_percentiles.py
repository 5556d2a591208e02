"""The time that so large a share of answers did not exceed."""

from hypothesis import given
from hypothesis import strategies as st

from ade.approvals.stats import percentile


@given(st.lists(st.integers(0, 10_000), min_size=1).map(sorted), st.sampled_from([0.5, 0.95]))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[int], share: float) -> None:
    found = percentile(values, share)

    assert found is not None
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert all(sum(each <= lower for each in values) < share * len(values) for lower in values if lower < found)
    assert percentile([], share) is None
