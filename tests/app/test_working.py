"""An app with a real worker, on a real clock: the same tasks, end to end."""

import asyncio
from pathlib import Path

import pytest

from ade import Ade, Context
from ade.settings import Settings, StoreSettings, WorkerSettings


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
