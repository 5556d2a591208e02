"""Queues take in only so much: a call fits as a whole or is told when to come back."""

import asyncio

import pytest

from ade.core.errors import QueueFull
from ade.core.failure import FailureKind
from ade.core.records import Queue, Task
from tests.conformance.scene import Scene


async def test_a_full_queue_refuses_a_call_as_a_whole_and_says_when_to_come_back(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="default", max_depth=3))
    await scene.add_many(2)

    with pytest.raises(QueueFull) as refused:
        await scene.add_many(2)

    assert refused.value.retry_after > 0
    assert await scene.counts() == {"pending": 2}
    await scene.add()


async def test_a_full_queue_tells_how_long_its_excess_takes_at_the_present_pace(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="default", max_depth=10))
    await scene.add_many(10)
    await scene.run(6)
    await scene.add_many(6)

    with pytest.raises(QueueFull) as refused:
        await scene.add_many(2)  # 6 ended within the last minute, so 2 take about 20 s

    assert refused.value.retry_after == pytest.approx(20)


async def test_only_unfinished_tasks_fill_a_queue(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="default", max_depth=1))
    running = await scene.start()
    with pytest.raises(QueueFull):
        await scene.add()
    await scene.fail(running, FailureKind.UNRECOVERABLE)

    await scene.add()
    await scene.add(queue="other")


async def test_a_task_that_is_known_already_needs_no_room(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="default", max_depth=1))
    first = await scene.add(idempotency_key="k")

    assert await scene.add(idempotency_key="k") == first


async def test_callers_at_once_never_overfill_a_queue(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="default", max_depth=5))

    answers = await asyncio.gather(*(scene.add() for _ in range(20)), return_exceptions=True)

    assert sum(isinstance(answer, Task) for answer in answers) == 5
    assert await scene.counts() == {"pending": 5}
