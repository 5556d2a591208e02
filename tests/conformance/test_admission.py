"""Queues take in only so much: a call fits as a whole or is told when to come back."""

import asyncio

import pytest

from ade import Task
from ade.accounts.model import SYSTEM
from ade.errors import QueueFull
from ade.failures import FailureKind
from tests.conformance.scene import Scene
from tests.domain import Queue


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


async def test_a_full_queue_still_takes_what_serves_its_tasks_and_nothing_else(scene: Scene) -> None:
    """A preview or a rollback must not be lost because others have filled the queue."""
    await scene.stores.queues.configure(Queue(name="default", max_depth=1))
    first = await scene.start()
    [rollback] = await scene.add_all(
        scene.task("build", source=SYSTEM, depends_on=(first.id,), parent_id=first.id, idempotency_key="rollback")
    )
    await scene.add("report", source=SYSTEM)
    with pytest.raises(QueueFull, match="holds 3 unfinished tasks and takes at most 1"):
        await scene.add()
    assert await scene.counts() == {"running": 1, "pending": 2}

    await scene.succeed(first)
    with pytest.raises(QueueFull):  # they are not kept out, but they do take room
        await scene.add()
    assert rollback.id in await scene.run(2)
    await scene.add()
    assert await scene.counts() == {"pending": 1, "completed": 3}


async def test_what_serves_tasks_needs_no_room_beside_others_in_one_call(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="default", max_depth=2))
    helpers = [scene.task("build", source=SYSTEM) for _ in range(3)]

    with pytest.raises(QueueFull):
        await scene.add_all(*helpers, *(scene.task() for _ in range(3)))
    assert await scene.counts() == {}
    await scene.add_all(*helpers, *(scene.task() for _ in range(2)))
    assert await scene.counts() == {"pending": 5}
    with pytest.raises(QueueFull):
        await scene.add()


async def test_callers_at_once_see_the_room_that_serving_tasks_take(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="default", max_depth=5))
    serving = [scene.add("build", source=SYSTEM) for _ in range(5)]

    answers = await asyncio.gather(*serving, *(scene.add() for _ in range(20)), return_exceptions=True)

    assert [answer.name for answer in answers if isinstance(answer, Task)] == ["build"] * 5  # they came first
    assert await scene.counts() == {"pending": 5}
