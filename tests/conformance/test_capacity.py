"""Capacity of agents on every store: never more units than there may be, and none is lost when somebody dies."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from ade.agents.model import DESCRIPTION, EVENT_OF_STATUS, Agent, AgentStatus, AgentUse, registration
from ade.events.model import Event
from ade.stores.ports import AGENT
from ade.stores.resource_ports import AgentStore
from tests.conformance.scene import Scene

CODER, WRITER = "coder-1", "team/writer@host:2"
LEASE_MS = 30_000


class Office:
    """Agents, and runs that want units of them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.store: AgentStore = scene.stores.agents

    async def register(
        self, agent_id: str = CODER, max_tasks: int = 2, *, keep: Collection[str] = (), **more: object
    ) -> Agent:
        now = self.scene.clock.now()
        agent = Agent(id=agent_id, max_tasks=max_tasks, registered_at=now, **more)  # type: ignore[arg-type]  # any field
        event = registration(agent, at=agent.registered_at, actor="ada")
        return await self.store.register(agent, keep=keep, event=event)

    async def set_status(self, status: AgentStatus, agent_id: str = CODER) -> Agent | None:
        event = Event(type=EVENT_OF_STATUS[status], at=self.scene.clock.now(), payload={"agent": agent_id})
        return await self.store.set_status(agent_id, status, event)

    async def take(self, *runs: str, agent_id: str = CODER, over: Sequence[str] = ()) -> list[str]:
        return await self.store.take(agent_id, runs, lease_ms=LEASE_MS, over=over)

    async def renew(self, *runs: str, agent: Agent) -> Agent:
        """As the lease thread of a worker does."""
        return await asyncio.to_thread(self.store.renew, agent, runs, lease_ms=LEASE_MS)

    async def use(self, agent_id: str = CODER) -> AgentUse:
        return next(use for use in await self.store.list_agents() if use.agent.id == agent_id)

    async def holders(self, agent_id: str = CODER) -> list[str]:
        return sorted((await self.use(agent_id)).leases)

    async def told(self) -> list[str]:
        return [event.type for event in await self.scene.stores.events.read(0, 1000)]


@pytest.fixture
def office(scene: Scene) -> Office:
    return Office(scene)


async def test_no_more_units_are_given_than_there_are(office: Office) -> None:
    await office.register(max_tasks=2)

    assert await office.take("a", "b", "c") == ["a", "b"]
    assert await office.take("d") == []
    assert await office.holders() == ["a", "b"]


async def test_asking_again_changes_nothing(office: Office) -> None:
    await office.register(max_tasks=2)
    await office.take("a")
    before = await office.use()
    office.scene.clock.advance(1)

    assert await office.take("a") == ["a"]
    assert await office.use() == before
    assert await office.take("b", "a", "b", "c") == ["b", "a"]


async def test_a_unit_that_is_given_back_goes_to_the_next(office: Office) -> None:
    await office.register(max_tasks=1)
    await office.take("a")

    await office.store.release(CODER, ["a", "nobody"])

    assert await office.take("b") == ["b"]


async def test_units_are_given_back_and_taken_in_one_step(office: Office) -> None:
    await office.register(max_tasks=2)
    await office.take("a", "b")

    assert await office.take("c", "d", over=["a"]) == ["c"]
    assert await office.holders() == ["b", "c"]


async def test_the_units_of_the_dead_come_back_when_their_leases_run_out(office: Office) -> None:
    await office.register(max_tasks=2)
    await office.take("a", "b")
    office.scene.clock.advance(29)
    assert await office.take("c") == []
    office.scene.clock.advance(1)

    assert (await office.use()).used == 0
    assert await office.take("c", "d", "e") == ["c", "d"]


async def test_leases_go_by_a_clock_that_nobody_puts_back(office: Office) -> None:
    await office.register(max_tasks=1)
    await office.take("a")
    office.scene.clock.jump_wall(3600)
    assert await office.take("b") == []
    office.scene.clock.jump_wall(-7200)
    office.scene.clock.advance(30)

    assert await office.take("b") == ["b"]


async def test_a_renewal_keeps_units(office: Office) -> None:
    agent = await office.register(max_tasks=1)
    await office.take("a")
    office.scene.clock.advance(20)
    await office.renew("a", agent=agent)
    office.scene.clock.advance(20)

    assert await office.take("b") == []
    assert (await office.use()).leases == {"a": office.scene.clock.steady() + 10_000}


async def test_who_is_still_at_work_is_counted_whatever_the_limit(office: Office) -> None:
    agent = await office.register(max_tasks=1)
    await office.take("a")
    office.scene.clock.advance(31)
    await office.take("b")

    await office.renew("a", agent=agent)

    assert await office.holders() == ["a", "b"]
    await office.store.release(CODER, ["b"])
    assert await office.take("c") == []


async def test_a_lower_limit_drives_nobody_out(office: Office) -> None:
    await office.register(max_tasks=3)
    await office.take("a", "b", "c")

    await office.register(max_tasks=1)

    assert await office.holders() == ["a", "b", "c"]
    assert await office.take("b", "d", over=["a"]) == ["b"]
    assert await office.take("d", over=["b"]) == []
    assert await office.take("d", over=["c"]) == ["d"]


@pytest.mark.parametrize("status", [AgentStatus.DRAINING, AgentStatus.OFFLINE])
async def test_an_agent_that_is_not_active_begins_nothing_new(office: Office, status: AgentStatus) -> None:
    agent = await office.register(max_tasks=3)
    await office.take("a")
    await office.set_status(status)

    assert await office.take("a", "b") == ["a"]
    assert (await office.renew("a", agent=agent)).status is status
    assert await office.set_status(AgentStatus.ACTIVE) == (await office.use()).agent
    assert await office.take("b") == ["b"]


async def test_to_register_again_keeps_what_was_set_by_hand(office: Office) -> None:
    first = await office.register(max_tasks=2)
    await office.set_status(AgentStatus.DRAINING)
    office.scene.clock.advance(5)

    kept = await office.register(max_tasks=7, keep=DESCRIPTION)
    changed = await office.register(max_tasks=7)

    assert (kept.max_tasks, kept.status, kept.registered_at) == (2, AgentStatus.DRAINING, first.registered_at)
    assert (changed.max_tasks, changed.status) == (7, AgentStatus.DRAINING)
    assert await office.told() == ["agent.registered", "agent.draining", "agent.registered"]


async def test_an_agent_is_kept_as_it_was_described_last(office: Office) -> None:
    can = ("gpu", "python")
    await office.register(type="coder", capabilities=can)
    kept = await office.register(max_tasks=4, keep=("type", "capabilities"))
    changed = await office.register(max_tasks=4, capabilities=("python",), keep=("type",))
    cleared = await office.register(max_tasks=4)

    assert (kept.max_tasks, kept.type, kept.capabilities) == (4, "coder", can)
    assert (changed.type, changed.capabilities) == ("coder", ("python",))
    assert (cleared.type, cleared.capabilities) == (None, ())
    assert (await office.use()).agent == cleared
    assert await office.told() == ["agent.registered"] * 4


async def test_a_heartbeat_changes_nothing_about_a_known_agent_and_tells_what_it_is(office: Office) -> None:
    known = await office.register(type="coder", capabilities=("gpu",))

    renewed = await office.renew("a", agent=Agent(id=CODER, max_tasks=9, capabilities=("other",)))
    await office.set_status(AgentStatus.DRAINING)

    assert (renewed.type, renewed.capabilities, renewed.max_tasks) == ("coder", ("gpu",), known.max_tasks)
    assert (await office.use()).agent.capabilities == ("gpu",)


async def test_an_agent_that_was_lost_comes_back_with_all_that_its_worker_knows(office: Office) -> None:
    agent = Agent(id=CODER, max_tasks=3, type="coder", capabilities=("gpu", "python"))

    assert (await office.renew("a", agent=agent)).capabilities == ("gpu", "python")
    assert (await office.use()).agent.type == "coder"


async def test_to_say_the_same_again_is_no_news(office: Office) -> None:
    for _ in range(2):
        await office.register(type="coder", capabilities=("gpu",))

    assert await office.told() == ["agent.registered"]


async def test_only_what_is_news_is_told(office: Office) -> None:
    await office.register(max_tasks=2)
    await office.register(max_tasks=2)
    for status in (AgentStatus.ACTIVE, AgentStatus.OFFLINE, AgentStatus.OFFLINE, AgentStatus.ACTIVE):
        await office.set_status(status)

    assert await office.told() == ["agent.registered", "agent.offline", "agent.active"]


async def test_an_agent_is_seen_as_long_as_somebody_renews(office: Office) -> None:
    agent = await office.register()
    assert agent.seen_until == office.scene.clock.steady()
    office.scene.clock.advance(50)

    seen = await office.renew(agent=agent)

    assert seen.seen_until == office.scene.clock.steady() + LEASE_MS
    assert (await office.use()).agent == seen


async def test_an_unknown_agent_has_no_units_and_no_status(office: Office) -> None:
    assert await office.take("a") == []
    assert await office.set_status(AgentStatus.DRAINING) is None
    assert await office.store.remove(CODER) is False
    await office.store.release(CODER, ["a"])
    assert await office.store.list_agents() == []
    assert await office.told() == []


async def test_an_agent_is_forgotten_with_its_units(office: Office) -> None:
    await office.register(max_tasks=1)
    await office.take("a")

    assert await office.store.remove(CODER, Event(type="agent.removed", at=0, payload={"agent": CODER})) is True

    assert await office.store.list_agents() == []
    assert await office.told() == ["agent.registered", "agent.removed"]
    await office.register(max_tasks=1)
    assert await office.take("b") == ["b"]


async def test_an_agent_that_was_lost_comes_back_with_those_who_work_for_it(office: Office) -> None:
    agent = await office.register(max_tasks=2)
    await office.store.remove(CODER)

    again = await office.renew("a", agent=agent)

    assert (again.id, again.max_tasks) == (CODER, 2)
    assert await office.holders() == ["a"]
    assert await office.told() == ["agent.registered", "agent.registered"]


async def test_agents_do_not_meet(office: Office) -> None:
    for agent_id in (WRITER, CODER, "zoe"):
        await office.register(agent_id, max_tasks=1)
        assert await office.take("same-run", agent_id=agent_id) == ["same-run"]

    assert [use.agent.id for use in await office.store.list_agents()] == [CODER, WRITER, "zoe"]
    await office.store.release(WRITER, ["same-run"])
    assert await office.holders() == ["same-run"]


async def test_who_waits_for_a_unit_is_told_when_there_is_one(office: Office) -> None:
    hints = office.scene.stores.hints
    await office.register(max_tasks=2)
    await office.take("a", "b")

    async def rings(action: object) -> bool:
        seen = hints.generation(AGENT)
        await action  # type: ignore[misc]  # whatever can be awaited
        return hints.generation(AGENT) > seen

    assert not await rings(office.take("c"))
    assert not await rings(office.take("c", over=["a"]))
    assert await rings(office.store.release(CODER, ["b"]))
    assert not await rings(office.store.release(CODER, ["c"])), "there was room before"
    await office.take("d", "e")
    assert await rings(office.register(max_tasks=3))
    await office.set_status(AgentStatus.DRAINING)
    assert not await rings(office.store.release(CODER, ["d"]))
    assert await rings(office.set_status(AgentStatus.ACTIVE))


async def test_of_many_who_ask_at_once_as_many_get_a_unit_as_there_are(office: Office) -> None:
    await office.register(max_tasks=5)

    answers = await asyncio.gather(*(office.take(f"run-{number}") for number in range(40)))

    assert sorted(map(len, answers)) == [0] * 35 + [1] * 5
    assert (await office.use()).used == 5
