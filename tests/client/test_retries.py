"""What may be asked twice, and after which time. The rules alone; servers that make them needed are in test_remote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.client.transport import RetryLimits, backoff_s, is_repeatable, pause_after_problem
from ade.server.problems import Problem
from tests.domain import ROUTES, Route


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_nothing_is_done_twice(route: Route) -> None:
    """A change is repeated if it has a key, or if the second time finds done what it asks for."""
    plain = is_repeatable(route, has_key=False, has_tag=False)
    assert plain == (not route.mutates or route.method in ("PUT", "DELETE"))
    assert is_repeatable(route, has_key=True, has_tag=True)
    assert is_repeatable(route, has_key=False, has_tag=True) == (not route.mutates)


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_pauses_grow_and_stay_bounded(times: int, randomness: float) -> None:
    assert 0.05 <= backoff_s(times, randomness) <= 7.5
    assert backoff_s(times, randomness) <= backoff_s(times + 1, randomness)


@given(st.text(max_size=30), st.sampled_from([429, 503]), st.integers(0, 100) | st.floats() | st.text() | st.none())
def test_no_header_makes_a_client_wait_longer_than_it_wants(header: str, status: int, member: object) -> None:
    problem = Problem(
        code="too_many_requests",
        status=status,
        title="",
        detail="",
        headers={"retry-after": header},
        more={"retry_after": member},
    )
    pause = pause_after_problem(problem, RetryLimits(longest_pause_s=20), sent_before=True)
    assert pause is None or 0 <= pause <= 20
