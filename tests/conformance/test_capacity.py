"""Capacity of agents on every store: never more units than there may be, and none is lost when somebody dies."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from ade.agents.model import DESCRIPTION, EVENT_OF_STATUS, Agent, AgentStatus, AgentUse, registration
from ade.stores.ports import AGENT
from ade.stores.resource_ports import AgentStore
from tests.conformance.scene import Scene
from tests.domain import Event

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
def services(scene: Scene) -> Office:
    return Office(scene)


async def test_no_more_units_are_given_than_there_are(services: Office) -> None:
    await services.register(max_tasks=2)

    assert await services.take("a", "b", "c") == ["a", "b"]
    assert await services.take("d") == []
    assert await services.holders() == ["a", "b"]


async def test_asking_again_changes_nothing(services: Office) -> None:
    await services.register(max_tasks=2)
    await services.take("a")
    before = await services.use()
    services.scene.clock.advance(1)

    assert await services.take("a") == ["a"]
    assert await services.use() == before
    assert await services.take("b", "a", "b", "c") == ["b", "a"]


async def test_a_unit_that_is_given_back_goes_to_the_next(services: Office) -> None:
    await services.register(max_tasks=1)
    await services.take("a")

    await services.store.release(CODER, ["a", "nobody"])

    assert await services.take("b") == ["b"]


async def test_units_are_given_back_and_taken_in_one_step(services: Office) -> None:
    await services.register(max_tasks=2)
    await services.take("a", "b")

    assert await services.take("c", "d", over=["a"]) == ["c"]
    assert await services.holders() == ["b", "c"]


async def test_the_units_of_the_dead_come_back_when_their_leases_run_out(services: Office) -> None:
    await services.register(max_tasks=2)
    await services.take("a", "b")
    services.scene.clock.advance(29)
    assert await services.take("c") == []
    services.scene.clock.advance(1)

    assert (await services.use()).used == 0
    assert await services.take("c", "d", "e") == ["c", "d"]


async def test_leases_go_by_a_clock_that_nobody_puts_back(services: Office) -> None:
    await services.register(max_tasks=1)
    await services.take("a")
    services.scene.clock.jump_wall(3600)
    assert await services.take("b") == []
    services.scene.clock.jump_wall(-7200)
    services.scene.clock.advance(30)

    assert await services.take("b") == ["b"]


async def test_a_renewal_keeps_units(services: Office) -> None:
    agent = await services.register(max_tasks=1)
    await services.take("a")
    services.scene.clock.advance(20)
    await services.renew("a", agent=agent)
    services.scene.clock.advance(20)

    assert await services.take("b") == []
    assert (await services.use()).leases == {"a": services.scene.clock.steady() + 10_000}


async def test_who_is_still_at_work_is_counted_whatever_the_limit(services: Office) -> None:
    agent = await services.register(max_tasks=1)
    await services.take("a")
    services.scene.clock.advance(31)
    await services.take("b")

    await services.renew("a", agent=agent)

    assert await services.holders() == ["a", "b"]
    await services.store.release(CODER, ["b"])
    assert await services.take("c") == []


async def test_a_lower_limit_drives_nobody_out(services: Office) -> None:
    await services.register(max_tasks=3)
    await services.take("a", "b", "c")

    await services.register(max_tasks=1)

    assert await services.holders() == ["a", "b", "c"]
    assert await services.take("b", "d", over=["a"]) == ["b"]
    assert await services.take("d", over=["b"]) == []
    assert await services.take("d", over=["c"]) == ["d"]


@pytest.mark.parametrize("status", [AgentStatus.DRAINING, AgentStatus.OFFLINE])
async def test_an_agent_that_is_not_active_begins_nothing_new(services: Office, status: AgentStatus) -> None:
    agent = await services.register(max_tasks=3)
    await services.take("a")
    await services.set_status(status)

    assert await services.take("a", "b") == ["a"]
    assert (await services.renew("a", agent=agent)).status is status
    assert await services.set_status(AgentStatus.ACTIVE) == (await services.use()).agent
    assert await services.take("b") == ["b"]


async def test_to_register_again_keeps_what_was_set_by_hand(services: Office) -> None:
    first = await services.register(max_tasks=2)
    await services.set_status(AgentStatus.DRAINING)
    services.scene.clock.advance(5)

    kept = await services.register(max_tasks=7, keep=DESCRIPTION)
    changed = await services.register(max_tasks=7)

    assert (kept.max_tasks, kept.status, kept.registered_at) == (2, AgentStatus.DRAINING, first.registered_at)
    assert (changed.max_tasks, changed.status) == (7, AgentStatus.DRAINING)
    assert await services.told() == ["agent.registered", "agent.draining", "agent.registered"]


async def test_an_agent_is_kept_as_it_was_described_last(services: Office) -> None:
    can = ("gpu", "python")
    await services.register(type="coder", capabilities=can)
    kept = await services.register(max_tasks=4, keep=("type", "capabilities"))
    changed = await services.register(max_tasks=4, capabilities=("python",), keep=("type",))
    cleared = await services.register(max_tasks=4)

    assert (kept.max_tasks, kept.type, kept.capabilities) == (4, "coder", can)
    assert (changed.type, changed.capabilities) == ("coder", ("python",))
    assert (cleared.type, cleared.capabilities) == (None, ())
    assert (await services.use()).agent == cleared
    assert await services.told() == ["agent.registered"] * 4


async def test_a_heartbeat_changes_nothing_about_a_known_agent_and_tells_what_it_is(services: Office) -> None:
    known = await services.register(type="coder", capabilities=("gpu",))

    renewed = await services.renew("a", agent=Agent(id=CODER, max_tasks=9, capabilities=("other",)))
    await services.set_status(AgentStatus.DRAINING)

    assert (renewed.type, renewed.capabilities, renewed.max_tasks) == ("coder", ("gpu",), known.max_tasks)
    assert (await services.use()).agent.capabilities == ("gpu",)


async def test_an_agent_that_was_lost_comes_back_with_all_that_its_worker_knows(services: Office) -> None:
    agent = Agent(id=CODER, max_tasks=3, type="coder", capabilities=("gpu", "python"))

    assert (await services.renew("a", agent=agent)).capabilities == ("gpu", "python")
    assert (await services.use()).agent.type == "coder"


async def test_to_say_the_same_again_is_no_news(services: Office) -> None:
    for _ in range(2):
        await services.register(type="coder", capabilities=("gpu",))

    assert await services.told() == ["agent.registered"]


async def test_only_what_is_news_is_told(services: Office) -> None:
    await services.register(max_tasks=2)
    await services.register(max_tasks=2)
    for status in (AgentStatus.ACTIVE, AgentStatus.OFFLINE, AgentStatus.OFFLINE, AgentStatus.ACTIVE):
        await services.set_status(status)

    assert await services.told() == ["agent.registered", "agent.offline", "agent.active"]


async def test_an_agent_is_seen_as_long_as_somebody_renews(services: Office) -> None:
    agent = await services.register()
    assert agent.seen_until == services.scene.clock.steady()
    services.scene.clock.advance(50)

    seen = await services.renew(agent=agent)

    assert seen.seen_until == services.scene.clock.steady() + LEASE_MS
    assert (await services.use()).agent == seen


async def test_an_unknown_agent_has_no_units_and_no_status(services: Office) -> None:
    assert await services.take("a") == []
    assert await services.set_status(AgentStatus.DRAINING) is None
    assert await services.store.remove(CODER) is False
    await services.store.release(CODER, ["a"])
    assert await services.store.list_agents() == []
    assert await services.told() == []


async def test_an_agent_is_forgotten_with_its_units(services: Office) -> None:
    await services.register(max_tasks=1)
    await services.take("a")

    assert await services.store.remove(CODER, Event(type="agent.removed", at=0, payload={"agent": CODER})) is True

    assert await services.store.list_agents() == []
    assert await services.told() == ["agent.registered", "agent.removed"]
    await services.register(max_tasks=1)
    assert await services.take("b") == ["b"]


async def test_an_agent_that_was_lost_comes_back_with_those_who_work_for_it(services: Office) -> None:
    agent = await services.register(max_tasks=2)
    await services.store.remove(CODER)

    again = await services.renew("a", agent=agent)

    assert (again.id, again.max_tasks) == (CODER, 2)
    assert await services.holders() == ["a"]
    assert await services.told() == ["agent.registered", "agent.registered"]


async def test_agents_do_not_meet(services: Office) -> None:
    for agent_id in (WRITER, CODER, "zoe"):
        await services.register(agent_id, max_tasks=1)
        assert await services.take("same-run", agent_id=agent_id) == ["same-run"]

    assert [use.agent.id for use in await services.store.list_agents()] == [CODER, WRITER, "zoe"]
    await services.store.release(WRITER, ["same-run"])
    assert await services.holders() == ["same-run"]


async def test_who_waits_for_a_unit_is_told_when_there_is_one(services: Office) -> None:
    wakeups = services.scene.stores.wakeups
    await services.register(max_tasks=2)
    await services.take("a", "b")

    async def rings(action: object) -> bool:
        seen = wakeups.generation(AGENT)
        await action  # type: ignore[misc]  # whatever can be awaited
        return wakeups.generation(AGENT) > seen

    assert not await rings(services.take("c"))
    assert not await rings(services.take("c", over=["a"]))
    assert await rings(services.store.release(CODER, ["b"]))
    assert not await rings(services.store.release(CODER, ["c"])), "there was room before"
    await services.take("d", "e")
    assert await rings(services.register(max_tasks=3))
    await services.set_status(AgentStatus.DRAINING)
    assert not await rings(services.store.release(CODER, ["d"]))
    assert await rings(services.set_status(AgentStatus.ACTIVE))


async def test_of_many_who_ask_at_once_as_many_get_a_unit_as_there_are(services: Office) -> None:
    await services.register(max_tasks=5)

    answers = await asyncio.gather(*(services.take(f"run-{number}") for number in range(40)))

    assert sorted(map(len, answers)) == [0] * 35 + [1] * 5
    assert (await services.use()).used == 5
