"""Waiting for tasks to end, without asking the store more than needed."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from ade import Status, Task
from ade.errors import StoreUnavailable, UnknownTask, WaitTimeout
from ade.tasks import service as tasks_service
from ade.tasks.service import CompletionWatcher
from tests.domain import Stores
from tests.tasks.queue_driver import QueueDriver


async def test_a_final_task_is_answered_at_once(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    await tasks_service.cancel(stores, task.id)

    assert (await CompletionWatcher(stores).wait(task.id, 0)).status is Status.CANCELLED


async def test_waiters_are_woken_by_the_end_of_their_task(queue: QueueDriver, stores: Stores) -> None:
    watch = CompletionWatcher(stores)
    first, second = await queue.enqueue(), await queue.enqueue()
    waiting = [asyncio.create_task(watch.wait(task.id, 30)) for task in (first, first, second)]
    await asyncio.sleep(0)

    await tasks_service.cancel(stores, first.id)
    ended = await asyncio.gather(*waiting[:2])
    assert [task.id for task in ended] == [first.id, first.id]
    assert not waiting[2].done()

    await tasks_service.cancel(stores, second.id)
    assert (await waiting[2]).id == second.id


async def test_patience_has_an_end_and_the_task_goes_on(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()

    with pytest.raises(WaitTimeout, match="it continues"):
        await CompletionWatcher(stores).wait(task.id, 0.01)
    assert (await queue.get(task)).status is Status.PENDING


async def test_an_unknown_task_is_not_waited_for(queue: QueueDriver, stores: Stores) -> None:
    with pytest.raises(UnknownTask):
        await CompletionWatcher(stores).wait(queue.task().id)


class GoesAway:
    """A task store that answers once and is away afterwards."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._answers = 1

    async def get(self, task_ids: Sequence[str]) -> list[Task | None]:
        self._answers -= 1
        if self._answers < 0:
            raise StoreUnavailable
        return await self._stores.tasks.get(task_ids)


async def test_a_store_that_goes_away_is_told_to_those_who_wait(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    failing = replace(stores, tasks=GoesAway(stores))  # only `get` is asked for

    with pytest.raises(StoreUnavailable):
        await CompletionWatcher(failing).wait(task.id, 30)
