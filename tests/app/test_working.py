"""An app with a real worker, on a real clock: the same tasks, end to end."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from ade import Ade, Context, Task
from ade.common.calls import Call
from ade.composition.stores import renewer
from ade.composition.worker import guardian_spec
from ade.settings import Settings
from tests.domain import Agent, ClaimRequest, StoreSettings, Worker, WorkerSettings


@pytest.fixture
def ade(tmp_path: Path) -> Ade:
    store = StoreSettings(url=f"sqlite:///{tmp_path / 'ade.db'}", ballast_mb=0)
    return Ade(settings=Settings(store=store, worker=WorkerSettings(lease_guard=False)))


async def test_enqueue_work_result(ade: Ade) -> None:
    stop = asyncio.Event()

    @ade.task
    async def add(ctx: Context, one: int, two: int) -> int:
        await ctx.log("adding")
        return one + two

    @ade.task
    def upper(text: str) -> str:
        return text.upper()

    async with ade:
        working = asyncio.create_task(ade.work(stop, concurrency=5))
        sums = await ade.enqueue_many([add.call(number, number) for number in range(20)])
        loud = await upper.enqueue("hello")
        assert [await task.result(timeout=30) for task in sums] == [2 * number for number in range(20)]
        assert await loud.result(timeout=30) == "HELLO"
        assert [line.text async for line in sums[0].output()] == ["adding"]
        stop.set()
        handover = await working
    assert handover.handed_back == ()


def test_a_guardian_can_renew_in_the_name_of_its_worker(ade: Ade) -> None:
    @ade.task
    async def work() -> None: ...

    async def claim() -> Task:
        request = ClaimRequest(worker_id="w1", run_ids=["r" * 32], names=frozenset({"work"}), lease_ms=1_000)
        [running] = await (await ade.open()).stores.tasks.claim(request)
        return running

    work.enqueue().wait()
    running = Call(claim(), ade.portal).wait()
    spec = guardian_spec(structs.replace(ade.settings, worker=WorkerSettings()))
    assert spec is not None
    worker = Worker(id="w1", hostname="h", pid=1, started_at=0, version="0")
    about = {"worker": worker, "lease_ms": 60_000, "store": spec.store}

    renew = renewer(msgspec.json.encode(about).decode()).renew
    assert renew({"x" * 32: ""}, ["r" * 32, "y" * 32]).gone == {"x" * 32: None}

    renewed = ade.handle(running.id).get().wait()
    assert (renewed.lease_until or 0) > (running.lease_until or 0) + 30_000
    assert guardian_spec(Ade("memory://").settings) is None
    ade.close().wait()


def test_a_guardian_keeps_the_units_of_its_workers_agent(ade: Ade) -> None:
    Call(ade.open(), ade.portal).wait()  # a guardian creates no store
    spec = guardian_spec(structs.replace(ade.settings, worker=WorkerSettings()))
    assert spec is not None
    worker = Worker(id="w1", hostname="h", pid=1, started_at=0, version="0")
    about = {"worker": worker, "lease_ms": 60_000, "store": spec.store, "agent": Agent(id="coder", max_tasks=2)}

    renewer(msgspec.json.encode(about).decode()).renew({"r" * 32: "a task"})

    async def holders() -> list[str]:
        [use] = await (await ade.open()).stores.agents.list_agents()
        return list(use.leases)

    assert Call(holders(), ade.portal).wait() == ["r" * 32]
    ade.close().wait()


async def test_a_running_task_is_cancelled_by_its_handle(ade: Ade) -> None:
    stop, started, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @ade.task
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with ade:
        working = asyncio.create_task(ade.work(stop))
        task = await endless.enqueue()
        await asyncio.wait_for(started.wait(), 30)
        assert (await task.explain()).codes == ["running_on"]
        await task.cancel("enough")
        await asyncio.wait_for(ended.wait(), 30)
        stop.set()
        await working
