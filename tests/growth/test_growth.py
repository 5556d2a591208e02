"""A queue that is quick when it is empty must be as quick with a backlog and a history. Counted, never timed."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import Raw

from ade import Status, Task
from ade.testing import TestClock
from tests.domain import ClaimRequest, Stores, Succeeded, TaskQuery, admit, settle, uuid7
from tests.growth.counting import counted

FEW, MANY = 300, 9_000  # tasks that are pending, and as many that are finished
BATCH = 20
Act = Callable[["Place"], Awaitable[None]]


class Place:
    """A store, and what people and workers do with it."""

    def __init__(self, stores: Stores, clock: TestClock) -> None:
        self.stores = stores
        self._clock = clock
        self.running: list[Task] = []

    async def add(self, count: int = BATCH) -> None:
        now = self._clock.now()
        new = [Task(id=uuid7(now, os.urandom(10)), name="send", priority=at % 3) for at in range(count)]
        await self.stores.tasks.add([admit(task, now=now) for task in new])

    async def claim(self, count: int = BATCH) -> None:
        run_ids = [os.urandom(16).hex() for _ in range(count)]
        request = ClaimRequest(worker_id="w1", run_ids=run_ids, names=frozenset({"send"}), may_be_repeated=False)
        self.running = await self.stores.tasks.claim(request)
        assert len(self.running) == count

    async def finish(self) -> None:
        now = self._clock.now()
        ends = [settle(task, Succeeded(Raw(b"1")), now=now, randomness=0.5) for task in self.running]
        assert set(await self.stores.tasks.commit_each(ends)) == {None}

    async def fill(self, count: int) -> None:
        """As many finished tasks as pending ones."""
        for _ in range(count // 300):
            await self.add(300)
            await self.claim(300)
            await self.finish()
        for _ in range(count // 300):
            await self.add(300)


async def add(place: Place) -> None:
    await place.add()


async def claim(place: Place) -> None:
    await place.claim()


async def finish(place: Place) -> None:
    await place.finish()


async def list_the_newest(place: Place) -> None:
    assert len((await place.stores.tasks.find(TaskQuery(limit=50))).tasks) == 50


async def list_a_queue(place: Place) -> None:
    assert len((await place.stores.tasks.find(TaskQuery(queue="default", limit=50))).tasks) == 50


async def list_what_runs(place: Place) -> None:
    page = await place.stores.tasks.find(TaskQuery(statuses=frozenset({Status.RUNNING}), limit=50))
    assert len(page.tasks) == BATCH


async def count_all(place: Place) -> None:
    assert await place.stores.queues.tallies()


async def look_for_what_is_ripe(place: Place) -> None:
    assert (await place.stores.sweeps.due(100)).expired == []


async def read_the_newest_events(place: Place) -> None:
    assert len(await place.stores.events.newest(20)) == 20


async def look_for_old_events(place: Place) -> None:
    assert await place.stores.events.trim(0, 5_000) == 0


STORY: tuple[Act, ...] = (
    add,
    claim,
    list_what_runs,
    finish,
    list_the_newest,
    list_a_queue,
    count_all,
    look_for_what_is_ripe,
    read_the_newest_events,
    look_for_old_events,
)


async def effort_of_each(kind: str, folder: Path, clock: TestClock, size: int) -> dict[str, int]:
    folder.mkdir()
    async with counted(kind, folder, clock) as (stores, effort):
        place = Place(stores, clock)
        await place.fill(size)
        efforts = {}
        for act in STORY:
            before = effort.total()
            await act(place)
            efforts[act.__name__] = effort.total() - before
        return efforts


@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
async def test_a_backlog_and_a_history_cost_nothing(kind: str, tmp_path: Path, clock: TestClock) -> None:
    small = await effort_of_each(kind, tmp_path / "small", clock, FEW)
    large = await effort_of_each(kind, tmp_path / "large", clock, MANY)

    assert all(count > 0 for count in small.values()), small
    grown = {act: (small[act], large[act]) for act in small if large[act] > small[act] * 1.2 + 30}
    assert grown == {}
