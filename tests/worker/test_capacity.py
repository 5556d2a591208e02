"""A worker under an agent: it begins no more than the agent may have, in all its workers together."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ade import Status, Task
from ade.agents import registry
from ade.errors import InvalidAgent, StoreUnavailable
from ade.tasks.service import cancel
from ade.testing import TestClock
from ade.worker.capacity import AgentCapacity
from ade.worker.worker import WorkerService
from tests.domain import Agent, AgentStatus, ClaimRequest, Stores, WorkerOptions, open_stores
from tests.waiting import eventually
from tests.worker.harness import Gate, Replaced, Workshop, soon

CODER = "coder-1"


async def used(stores: Stores) -> int:
    return sum(use.used for use in await stores.agents.list_agents())


async def all_free(workshop: Workshop) -> None:
    """Until every unit is given back: nothing tells of it but the store."""

    async def is_free() -> bool:
        return await used(workshop.stores) == 0

    await eventually(is_free)


def with_agents(stores: Stores, **methods: Any) -> Stores:
    agents: Any = Replaced(stores.agents, methods)
    return replace(stores, agents=agents)


class Crowd:
    """Tasks that tell how many of them run at once, and wait until they are let go."""

    def __init__(self, workshop: Workshop, *, full_at: int) -> None:
        self.running, self.most, self.begun = 0, 0, 0
        self.is_full = asyncio.Event()
        self.gate = Gate()
        self._full_at = full_at
        workshop.handle(self.work, name="work")

    async def work(self) -> None:
        self.running += 1
        self.begun += 1
        self.most = max(self.most, self.running)
        if self.running == self._full_at:
            self.is_full.set()
        await self.gate()
        await asyncio.sleep(0)
        self.running -= 1


async def test_two_workers_of_one_agent_share_what_it_may_do(workshop: Workshop) -> None:
    crowd = Crowd(workshop, full_at=3)
    tasks = await workshop.enqueue_many("work", 30)
    async with (
        workshop.worker(agent=CODER, max_tasks=3, concurrency=10),
        workshop.worker(agent=CODER, max_tasks=3, concurrency=10),
    ):
        await soon(crowd.is_full)
        assert await used(workshop.stores) == 3
        crowd.gate.open()
        ended = [await workshop.final(task) for task in tasks]
        await all_free(workshop)

    assert crowd.most == 3
    assert {task.status for task in ended} == {Status.COMPLETED}


async def test_its_own_runs_make_room_for_the_next_without_any_polling(workshop: Workshop) -> None:
    ran = Counter[str]()

    async def step(kind: str) -> None:
        ran[kind] += 1
        if kind == "fails":
            raise RuntimeError("no luck")

    workshop.handle(step)
    kinds = ["works", "fails"] * 6
    tasks = [await workshop.enqueue("step", {"kind": kind}, max_attempts=1) for kind in kinds]
    async with workshop.worker(agent=CODER, max_tasks=1, concurrency=10):
        for task in tasks:
            await workshop.final(task)
        await all_free(workshop)

    assert ran == {"works": 6, "fails": 6}


async def test_a_unit_that_is_given_back_elsewhere_is_used_at_once(workshop: Workshop) -> None:
    asked = asyncio.Event()

    async def take(*given: Any, **more: Any) -> list[str]:
        units = await workshop.stores.agents.take(*given, **more)
        asked.set()
        return units

    async def nothing() -> None: ...

    workshop.handle(nothing)
    await registry.register(workshop.stores, CODER, 1)
    await workshop.stores.agents.take(CODER, ["a run elsewhere"], lease_ms=60_000)
    task = await workshop.enqueue("nothing")
    async with workshop.worker(agent=CODER, stores=with_agents(workshop.stores, take=take)):
        await soon(asked)
        assert (await workshop.get(task)).status is Status.PENDING
        await workshop.stores.agents.release(CODER, ["a run elsewhere"])
        assert (await workshop.final(task)).status is Status.COMPLETED


async def test_the_units_of_a_killed_worker_come_back_after_its_lease() -> None:
    clock = TestClock()
    stores = await open_stores("memory://", clock=clock)
    workshop = Workshop(stores)
    refused = asyncio.Event()

    async def take(*given: Any, **more: Any) -> list[str]:
        units = await stores.agents.take(*given, **more)
        if not units:
            refused.set()
        return units

    async def nothing() -> None: ...

    workshop.handle(nothing)
    await registry.register(stores, CODER, 2)
    await stores.agents.take(CODER, ["of the killed", "of the killed too"], lease_ms=30_000)
    task = await workshop.enqueue("nothing")
    async with workshop.worker(agent=CODER, poll_s=0.01, stores=with_agents(stores, take=take)):
        await soon(refused)
        clock.advance(31)
        assert (await workshop.final(task)).status is Status.COMPLETED
    await stores.close()


async def test_a_draining_agent_begins_nothing_until_it_is_active_again(workshop: Workshop) -> None:
    crowd = Crowd(workshop, full_at=1)
    first = await workshop.enqueue("work")
    asked = asyncio.Queue[int]()

    async def take(agent_id: str, holders: Sequence[str], **more: Any) -> list[str]:
        units = await workshop.stores.agents.take(agent_id, holders, **more)
        asked.put_nowait(len(units))
        return units

    async with workshop.worker(agent=CODER, concurrency=2, stores=with_agents(workshop.stores, take=take)):
        await soon(crowd.is_full)
        await registry.set_status(workshop.stores, CODER, AgentStatus.DRAINING)
        second = await workshop.enqueue("work")
        while await asyncio.wait_for(asked.get(), 60):
            pass
        crowd.gate.open()
        await workshop.final(first)
        assert (await workshop.get(second)).status is Status.PENDING
        await registry.set_status(workshop.stores, CODER, AgentStatus.ACTIVE)
        assert (await workshop.final(second)).status is Status.COMPLETED


async def test_a_full_agent_is_not_asked_again_and_again(workshop: Workshop) -> None:
    asked = 0

    async def take(*given: Any, **more: Any) -> list[str]:
        nonlocal asked
        asked += 1
        return await workshop.stores.agents.take(*given, **more)

    crowd = Crowd(workshop, full_at=2)
    tasks = await workshop.enqueue_many("work", 4)
    stores = with_agents(workshop.stores, take=take)
    async with workshop.worker(agent=CODER, max_tasks=2, concurrency=10, stores=stores):
        await soon(crowd.is_full)
        for _ in range(20):
            await workshop.enqueue("work")
        assert asked <= 3
        crowd.gate.open()
        for task in tasks:
            await workshop.final(task)


async def test_a_cancelled_run_gives_its_unit_back(workshop: Workshop) -> None:
    crowd = Crowd(workshop, full_at=1)
    first = await workshop.enqueue("work")
    second = await workshop.enqueue("work")
    async with workshop.worker(agent=CODER, max_tasks=1, concurrency=5):
        await soon(crowd.is_full)
        crowd.is_full.clear()
        crowd.running = 0
        await cancel(workshop.stores, first.id, "enough")
        await soon(crowd.is_full)
        assert (await workshop.get(second)).status is Status.RUNNING
        crowd.gate.open()
        await workshop.final(second)


@pytest.mark.parametrize(
    ("given", "known", "expected"), [(None, None, 7), (None, 3, 3), (4, 3, 4), (4, None, 4)], ids=str
)
async def test_the_limit_is_the_one_given_the_one_known_or_the_workers_own(
    workshop: Workshop, given: int | None, known: int | None, expected: int
) -> None:
    async def nothing() -> None: ...

    workshop.handle(nothing)
    if known is not None:
        await registry.register(workshop.stores, CODER, known)
    async with workshop.worker(agent=CODER, max_tasks=given, concurrency=7):
        await workshop.final(await workshop.enqueue("nothing"))

    [use] = await workshop.stores.agents.list_agents()
    assert (use.agent.max_tasks, use.used) == (expected, 0)
    assert use.agent.seen_until > workshop.stores.clock.steady()


async def test_a_claim_whose_answer_was_lost_keeps_its_units_until_it_is_known(workshop: Workshop) -> None:
    lost: list[ClaimRequest] = []

    async def claim(request: ClaimRequest) -> list[Task]:
        tasks = await workshop.stores.tasks.claim(request)
        if tasks and not lost:
            lost.append(request)
            raise StoreUnavailable("the answer was lost")
        if lost and request.run_ids == lost[0].run_ids:
            assert await used(workshop.stores) == len(request.run_ids)
        return tasks

    async def nothing() -> None: ...

    workshop.handle(nothing)
    tasks = await workshop.enqueue_many("nothing", 5)
    async with workshop.worker(agent=CODER, max_tasks=2, stores=workshop.with_tasks(claim=claim)):
        for task in tasks:
            assert (await workshop.final(task)).attempt == 1
        await all_free(workshop)


async def test_a_store_that_gives_no_units_for_a_while_is_asked_again(workshop: Workshop) -> None:
    failures = 0

    def failing(method: Callable[..., Any]) -> Callable[..., Any]:
        async def fail_first(*given: Any, **more: Any) -> Any:
            nonlocal failures
            answer = await method(*given, **more)
            if failures < 2:
                failures += 1
                raise StoreUnavailable("the answer was lost")
            return answer

        return fail_first

    async def nothing() -> None: ...

    workshop.handle(nothing)
    task = await workshop.enqueue("nothing")
    stores = with_agents(workshop.stores, take=failing(workshop.stores.agents.take))
    async with workshop.worker(agent=CODER, max_tasks=1, stores=stores):
        assert (await workshop.final(task)).status is Status.COMPLETED
        await all_free(workshop)


async def test_what_is_running_when_a_worker_stops_gives_its_units_back(workshop: Workshop) -> None:
    crowd = Crowd(workshop, full_at=2)
    await workshop.enqueue_many("work", 2)
    async with workshop.worker(agent=CODER, max_tasks=2, grace_s=0.0) as shift:
        await soon(crowd.is_full)
        await shift.end()

    assert await used(workshop.stores) == 0


async def test_a_wrong_agent_is_told_before_anything_is_claimed(workshop: Workshop) -> None:
    async def nothing() -> None: ...

    workshop.handle(nothing)
    runtime = WorkerService(workshop.stores, workshop.registry, WorkerOptions(agent="no good"))

    with pytest.raises(InvalidAgent, match="'no good' is not a valid name"):
        await runtime.run(asyncio.Event())


class Units:
    """A worker's units, with runs that are held by hand."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.held: dict[str, object] = {}
        options = WorkerOptions(agent=CODER, max_tasks=2)
        self.capacity = AgentCapacity(stores.agents, stores.clock, options, "worker-1", self.held, asyncio.Event())

    async def claim(self, *run_ids: str) -> None:
        given = await self.capacity.take(run_ids)
        self.held.update(dict.fromkeys(given))
        self.capacity.claimed()

    async def renew(self, *run_ids: str) -> None:
        loop = asyncio.get_running_loop()
        runs = dict.fromkeys(run_ids, "a task")
        await asyncio.to_thread(self.capacity.renew, runs, loop.call_soon_threadsafe)
        await asyncio.sleep(0)


@pytest.fixture
async def units(stores: Stores) -> Units:
    units = Units(stores)
    await units.capacity.open()
    return units


async def test_a_run_that_ends_while_it_is_renewed_leaves_no_unit_behind(units: Units) -> None:
    await units.claim("a", "b")
    del units.held["a"]
    await units.capacity.close()
    await units.renew("a", "b")
    assert await used(units.stores) == 2

    assert units.capacity.has_over
    await units.capacity.close()

    [use] = await units.stores.agents.list_agents()
    assert list(use.leases) == ["b"]


async def test_what_is_being_claimed_is_renewed_and_what_was_refused_is_not(units: Units) -> None:
    await units.capacity.take(["a", "b", "c"])

    await units.renew()

    [use] = await units.stores.agents.list_agents()
    assert sorted(use.leases) == ["a", "b"]
    assert not units.capacity.has_over


async def test_a_renewal_brings_a_lost_agent_back(units: Units) -> None:
    await units.claim("a")
    await units.stores.agents.remove(CODER)

    await units.renew("a")

    [use] = await units.stores.agents.list_agents()
    assert (use.agent.max_tasks, list(use.leases)) == (2, ["a"])


async def test_a_renewal_that_fails_stops_nobody(units: Units, caplog: pytest.LogCaptureFixture) -> None:
    def renew(*given: Any, **more: Any) -> Agent:
        raise StoreUnavailable("away")

    units.capacity._store = with_agents(units.stores, renew=renew).agents

    await units.renew("a")

    assert "capacity.not_renewed" in caplog.text


async def test_units_that_could_not_be_given_back_are_given_back_later(
    units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.worker.capacity._PAUSE_S", 0.01)
    failures, done = 0, asyncio.Event()

    async def release(*given: Any) -> None:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise StoreUnavailable("away")
        await units.stores.agents.release(*given)
        done.set()

    units.capacity._store = with_agents(units.stores, release=release).agents
    await units.claim("a")
    work = asyncio.create_task(units.capacity.work())
    units.held.clear()
    units.capacity.look()
    await soon(done)
    work.cancel()

    assert await used(units.stores) == 0
