"""Pending tasks get another priority or start time: one rule, on every store and through every way to ask for it."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ade import Ade, Task
from ade.errors import AdeError, IllegalTransition, InvalidTask, UnknownTask
from ade.failures import FailureKind, TaskError
from ade.tasks import service
from tests.domain import (
    NOTIFY_PERSON,
    QUEUE,
    ClaimRequest,
    Definition,
    Failed,
    Stores,
    Worker,
    cancel,
    explain,
    settle,
)
from tests.tasks.queue_driver import QueueDriver


async def claimed(queue: QueueDriver, count: int = 1, *names: str) -> list[Task]:
    request = ClaimRequest(
        worker_id="w1", run_ids=[os.urandom(16).hex() for _ in range(count)], names=frozenset(names or ("send",))
    )
    return await queue.stores.tasks.claim(request)


async def is_sound(stores: Stores) -> bool:
    assert await stores.maintenance.check_invariants() == []
    return True


async def test_a_task_that_is_due_starts_later(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    moved = await service.reschedule(stores, task.id, delay=60, actor="ada")

    assert moved.run_after == queue.clock.now() + 60_000
    assert await claimed(queue) == []
    assert (await explain(stores, task.id)).codes[0] == "delayed"
    queue.clock.advance(59)
    assert await claimed(queue) == []
    queue.clock.advance(2)
    assert [each.id for each in await claimed(queue)] == [task.id]
    assert await is_sound(stores)


async def test_a_delayed_task_runs_now(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue(run_after=queue.clock.now() + 3_600_000)
    moved = await service.reschedule(stores, task.id, delay=0, actor="ada")

    assert moved.run_after == queue.clock.now()
    assert [each.id for each in await claimed(queue)] == [task.id]
    [event] = [each for each in await stores.events.read(0, 100, task_id=task.id) if each.type == "task.rescheduled"]
    assert event.actor == "ada"
    assert event.payload == {"run_after": moved.run_after, "before": {"run_after": task.run_after}}


async def test_the_delay_before_a_retry_is_ended(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    running = await queue.claim()
    failed = Failed(TaskError(kind=FailureKind.RAISED, type="Oops", message="no luck"), retry_after_ms=900_000)
    await stores.tasks.commit(settle(running, failed, now=queue.clock.now(), randomness=0.5))
    assert await claimed(queue) == []
    await service.reschedule(stores, task.id, delay=0)
    [claim] = await claimed(queue)
    assert (claim.id, claim.attempt) == (task.id, 2)


async def test_priorities_change_the_order(queue: QueueDriver, stores: Stores) -> None:
    first, second, third = [await queue.enqueue() for _ in range(3)]
    await service.reschedule(stores, third.id, priority="urgent")
    await service.reschedule(stores, first.id, priority=9)

    assert [each.id for each in await claimed(queue, 3)] == [third.id, second.id, first.id]
    assert await is_sound(stores)


async def test_both_at_once_and_a_time(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    at = datetime.fromtimestamp(queue.clock.now() / 1000 + 90, UTC)
    moved = await service.reschedule(stores, task.id, priority="low", run_at=at)
    assert (moved.priority, moved.run_after) == (7, queue.clock.now() + 90_000)
    past = await service.reschedule(stores, task.id, run_at=at - timedelta(days=9))
    assert past.run_after == queue.clock.now()


async def test_what_is_so_already_is_not_written(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue(priority=3)
    assert await service.reschedule(stores, task.id, priority="high", delay=0) == task
    assert await queue.events(task) == ["task.created"]


@pytest.mark.parametrize("state", ["running", "completed", "cancelled"])
async def test_only_pending_tasks(queue: QueueDriver, stores: Stores, state: str) -> None:
    task = await queue.enqueue()
    if state == "cancelled":
        await stores.tasks.commit(cancel(task, None, now=queue.clock.now()))
    else:
        running = await queue.claim()
        if state == "completed":
            await queue.complete(running)
    before = await queue.get(task)
    with pytest.raises(IllegalTransition, match=f"is {state}: only a pending task"):
        await service.reschedule(stores, task.id, delay=0, priority=1)
    assert await queue.get(task) == before


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "name what to change"),
        ({"delay": 5, "run_at": datetime(2040, 1, 1, tzinfo=UTC)}, "either delay or run_at"),
        ({"delay": -1}, "at least 0 seconds"),
        ({"priority": 11}, "priority"),
        ({"run_at": datetime(2040, 1, 1)}, "no time zone"),
        ({"delay": 61}, "at its deadline"),
    ],
)
async def test_what_cannot_be_is_refused(queue: QueueDriver, stores: Stores, given: dict[str, Any], told: str) -> None:
    task = await queue.enqueue(deadline=queue.clock.now() + 60_000)
    with pytest.raises(AdeError, match=told):
        await service.reschedule(stores, task.id, **given)
    assert await queue.get(task) == task
    with pytest.raises(UnknownTask):
        await service.reschedule(stores, "00000000-0000-7000-8000-000000000000", delay=1)


async def test_nobody_delays_what_notifies_a_person(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue(NOTIFY_PERSON, queue=QUEUE, source="system")
    with pytest.raises(InvalidTask, match="notifies a person"):
        await service.reschedule(stores, task.id, delay=3_600)


async def test_a_task_that_leaves_lets_the_next_of_its_key_go(queue: QueueDriver, stores: Stores) -> None:
    """Of the tasks of a busy key, one at a time is ready. If that one is moved, another must take its place."""
    worker = Worker(id="w1", hostname="h", pid=1, started_at=0, version="0", names=("send",))
    await stores.workers.register(worker, [Definition(name="send", concurrency_per_key=1)], 600_000)
    first, second, third = [await queue.enqueue(concurrency_key="k") for _ in range(3)]
    [running] = await claimed(queue, 3)
    assert running.id == first.id
    await queue.complete(running)
    await service.reschedule(stores, second.id, delay=3_600)

    assert [each.id for each in await claimed(queue, 3)] == [third.id]
    assert await is_sound(stores)


async def test_the_most_urgent_of_its_key_goes_first(queue: QueueDriver, stores: Stores) -> None:
    worker = Worker(id="w1", hostname="h", pid=1, started_at=0, version="0", names=("send",))
    await stores.workers.register(worker, [Definition(name="send", concurrency_per_key=1)], 600_000)
    first, second, third = [await queue.enqueue(concurrency_key="k") for _ in range(3)]
    [running] = await claimed(queue, 3)
    await service.reschedule(stores, third.id, priority=0)
    await queue.complete(running)
    [following] = await claimed(queue, 3)
    assert (running.id, following.id) == (first.id, third.id)
    await queue.complete(following)
    assert [each.id for each in await claimed(queue, 3)] == [second.id]


async def test_a_task_that_waits_for_others_starts_no_earlier(queue: QueueDriver, stores: Stores) -> None:
    first = await queue.enqueue()
    second = await queue.enqueue(depends_on=(first.id,))
    await service.reschedule(stores, second.id, delay=60, priority=0)
    await queue.complete(await queue.claim())
    assert await claimed(queue) == []
    queue.clock.advance(61)
    assert [each.id for each in await claimed(queue)] == [second.id]
    assert await is_sound(stores)


def test_from_a_program_without_an_event_loop(tmp_path: Path) -> None:
    ade = Ade(f"sqlite:///{tmp_path / 'ade.db'}")

    @ade.task
    def send() -> None:
        """Nothing."""

    handle = send.with_options(delay=3_600).enqueue().wait()
    moved = handle.reschedule(priority="low", delay=timedelta(minutes=5)).wait()
    assert moved.priority == 7
    assert moved.run_after - moved.updated_at == 300_000
    ade.close().wait()
