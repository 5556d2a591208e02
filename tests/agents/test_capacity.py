"""The rule of capacity: who gets a unit, and how an agent stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.agents.model import MOST_TASKS, OFFLINE_AFTER_MS, Agent, AgentStatus, check_agent, granted, status_at
from ade.errors import InvalidAgent
from tests.fuzz.table import passes

HOLDERS = [f"r{number}" for number in range(12)]
holders = st.lists(st.sampled_from(HOLDERS), max_size=12)


def agent(max_tasks: int = 3, status: AgentStatus = AgentStatus.ACTIVE, seen_until: int = 0) -> Agent:
    return Agent(id="coder", max_tasks=max_tasks, status=status, seen_until=seen_until)


@given(
    wanted=holders, live=st.sets(st.sampled_from(HOLDERS)), limit=st.integers(1, 9), status=st.sampled_from(AgentStatus)
)
def test_nobody_gets_a_unit_past_the_limit_and_nobody_loses_one(
    wanted: list[str], live: set[str], limit: int, status: AgentStatus
) -> None:
    given = granted(agent(limit, status), wanted, live)
    new = [holder for holder in given if holder not in live]

    assert set(given) <= set(wanted)
    assert len(given) == len(set(given))
    assert set(wanted) & live <= set(given)
    assert not new or (status is AgentStatus.ACTIVE and len(live) + len(new) <= limit)
    if status is AgentStatus.ACTIVE and len(live) + len(new) < limit:
        assert set(given) == set(wanted), "there was room for more"


def test_units_go_by_the_order_in_which_they_are_asked_for() -> None:
    assert granted(agent(2), ["c", "b", "a"], {"x"}) == ["c"]


@pytest.mark.parametrize("agent_id", ["coder-1", "team/coder@host:8080", "9", "a" * 100])
def test_names_that_an_agent_may_have(agent_id: str) -> None:
    assert passes(lambda: check_agent(agent_id, 1), InvalidAgent)


@pytest.mark.parametrize("agent_id", ["", "no good", "{coder}", "-coder", "a" * 101, "coder\n"])
def test_names_that_it_may_not_have(agent_id: str) -> None:
    with pytest.raises(InvalidAgent, match="is not a valid name"):
        check_agent(agent_id, 1)


@pytest.mark.parametrize("max_tasks", [0, -1, MOST_TASKS + 1, True, 1.5])
def test_limits_that_it_may_not_have(max_tasks: int) -> None:
    with pytest.raises(InvalidAgent, match="max_tasks of agent coder is 1 to"):
        check_agent("coder", max_tasks)


def test_an_agent_that_nobody_has_heard_of_for_long_is_offline() -> None:
    seen = agent(status=AgentStatus.DRAINING, seen_until=1_000)

    assert status_at(seen, 1_000 + OFFLINE_AFTER_MS) is AgentStatus.DRAINING
    assert status_at(seen, 1_001 + OFFLINE_AFTER_MS) is AgentStatus.OFFLINE
