"""Random histories of agents: a store gives what the rule gives, and never more than there is."""

import asyncio
import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from msgspec import structs

from ade.agents.model import DESCRIPTION, Agent, AgentStatus, granted
from tests.conformance.backends import BACKENDS
from tests.conformance.histories import StoreHistories, play

LEASE_MS = 30_000
AGENTS = ("coder", "writer")
agents = st.sampled_from(AGENTS)
pick = st.integers(min_value=0, max_value=1_000_000)


class CapacityHistories(StoreHistories):
    """Everything is done twice: by the store, and by the rule alone. Whoever is not renewed has crashed."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.stores.agents
        self.numbers = itertools.count()
        self.known: dict[str, Agent] = {}
        self.leases: dict[str, dict[str, int]] = {agent_id: {} for agent_id in AGENTS}

    def live(self, agent_id: str) -> dict[str, int]:
        steady = self.clock.steady()
        return {holder: end for holder, end in self.leases[agent_id].items() if end > steady}

    def some(self, agent_id: str, numbers: list[int]) -> list[str]:
        """Holders that have had a unit, live or not."""
        held = sorted(self.leases[agent_id])
        return list({held[number % len(held)]: None for number in numbers}) if held else []

    @rule(
        agent_id=agents,
        max_tasks=st.integers(1, 4),
        kind=st.sampled_from([None, "coder"]),
        capabilities=st.sampled_from([(), ("gpu",), ("gpu", "net")]),
        keep=st.sets(st.sampled_from(DESCRIPTION)),
    )
    def register(
        self, agent_id: str, max_tasks: int, kind: str | None, capabilities: tuple[str, ...], keep: set[str]
    ) -> None:
        said = {"max_tasks": max_tasks, "type": kind, "capabilities": capabilities}
        new = Agent(id=agent_id, registered_at=self.clock.now(), **said)  # type: ignore[arg-type]  # by their names
        before = self.known.get(agent_id, new)
        seen_until = max(before.seen_until, self.clock.steady())
        changed = {name: value for name, value in said.items() if name not in keep}
        after = structs.replace(before, seen_until=seen_until, **changed)
        self.known[agent_id] = after
        assert self.do(self.store.register(new, keep=keep)) == after

    @rule(agent_id=agents, status=st.sampled_from(AgentStatus))
    def set_status(self, agent_id: str, status: AgentStatus) -> None:
        if agent_id in self.known:
            self.known[agent_id] = structs.replace(self.known[agent_id], status=status)
        assert self.do(self.store.set_status(agent_id, status)) == self.known.get(agent_id)

    @rule(agent_id=agents, count=st.integers(0, 4), again=st.lists(pick, max_size=2), over=st.lists(pick, max_size=2))
    def take(self, agent_id: str, count: int, again: list[int], over: list[int]) -> None:
        wanted = [*self.some(agent_id, again), *(f"run-{next(self.numbers)}" for _ in range(count))]
        ended = self.some(agent_id, over)
        for holder in ended:
            del self.leases[agent_id][holder]
        live, agent = self.live(agent_id), self.known.get(agent_id)
        expected = [] if agent is None else granted(agent, wanted, live)
        given = self.do(self.store.take(agent_id, wanted, lease_ms=LEASE_MS, over=ended))
        assert given == expected
        new = [holder for holder in given if holder not in live]
        assert not new or (agent is not None and len(live) + len(new) <= agent.max_tasks)
        self.leases[agent_id].update(dict.fromkeys(new, self.clock.steady() + LEASE_MS))

    @rule(agent_id=agents, numbers=st.lists(pick, max_size=3))
    def release(self, agent_id: str, numbers: list[int]) -> None:
        ended = self.some(agent_id, numbers)
        self.do(self.store.release(agent_id, ended))
        for holder in ended:
            del self.leases[agent_id][holder]

    @rule(agent_id=agents, numbers=st.lists(pick, max_size=3), lease_ms=st.sampled_from([LEASE_MS, 5_000]))
    def renew(self, agent_id: str, numbers: list[int], lease_ms: int) -> None:
        holders, until = self.some(agent_id, numbers), self.clock.steady() + lease_ms
        told = Agent(id=agent_id, max_tasks=2)
        after = structs.replace(self.known.get(agent_id, told), seen_until=until)
        self.known[agent_id] = after
        renewal = asyncio.to_thread(self.store.renew, told, holders, lease_ms=lease_ms)
        assert self.do(renewal) == after
        self.leases[agent_id].update(dict.fromkeys(holders, until))

    @rule(agent_id=agents)
    def remove(self, agent_id: str) -> None:
        is_known = self.known.pop(agent_id, None) is not None
        assert self.do(self.store.remove(agent_id)) is is_known
        self.leases[agent_id].clear()

    @rule(seconds=st.sampled_from([0.001, 1, 6, 29, 31]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def put_the_clock_back(self) -> None:
        self.clock.jump_wall(-60)

    @invariant()
    def the_store_holds_the_same(self) -> None:
        uses = self.do(self.store.list_agents())
        assert {use.agent.id: use.agent for use in uses} == self.known
        assert {use.agent.id: use.leases for use in uses} == {each: self.live(each) for each in self.known}


@pytest.mark.deep
@pytest.mark.parametrize("backend_name", BACKENDS)
def test_whatever_happens_nobody_gets_a_unit_that_is_not_there(backend_name: str) -> None:
    assert play(CapacityHistories, backend_name, in_depth=30, steps=30) > 0
