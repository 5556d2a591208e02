"""Tasks come in whole or not at all."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw, structs

from ade import Status, Task
from ade.errors import (
    DependencyCycle,
    DiskFull,
    IdempotencyConflict,
    InvalidTask,
    PayloadTooLarge,
    QueueFull,
    StoreCorrupt,
    UnknownDependency,
)
from ade.failures import Backoff
from ade.stores.ports import WORK, Stores, TaskQuery, TaskStore
from ade.tasks.enqueue import Invocation, TaskPlan, enqueue, make_tasks, template_of, uuid7
from tests.domain import (
    AfterFailure,
    Definition,
    Payloads,
    Queue,
    StoreSettings,
    TaskSettings,
    open_sqlite,
    open_stores,
)
from tests.tasks.queue_driver import QueueDriver

LARGE = "x" * 500


async def test_an_enqueued_task_is_pending_and_rings_for_a_worker(queue: QueueDriver, stores: Stores) -> None:
    seen = stores.wakeups.generation(WORK)
    task = await queue.enqueue(arguments={"to": "ada"})

    assert (await queue.get(task)).status is Status.PENDING
    assert await queue.events(task) == ["task.created"]
    assert stores.wakeups.generation(WORK) > seen


async def test_one_bad_task_keeps_the_whole_batch_out(queue: QueueDriver, stores: Stores, payloads: Payloads) -> None:
    with pytest.raises(InvalidTask, match="priority 11"):
        await enqueue(stores, payloads, [queue.task(), queue.task(priority=11)])

    assert (await stores.tasks.find(TaskQuery())).tasks == []


async def test_tasks_that_wait_for_each_other_are_refused(
    queue: QueueDriver, stores: Stores, payloads: Payloads
) -> None:
    one, two = queue.task(), queue.task()
    ring = [structs.replace(one, depends_on=(two.id,)), structs.replace(two, depends_on=(one.id,))]

    with pytest.raises(DependencyCycle, match="in a cycle"):
        await enqueue(stores, payloads, ring)
    assert (await stores.tasks.find(TaskQuery())).tasks == []


async def test_a_task_cannot_wait_for_itself(queue: QueueDriver, stores: Stores, payloads: Payloads) -> None:
    task = queue.task()

    with pytest.raises(DependencyCycle):
        await enqueue(stores, payloads, [structs.replace(task, depends_on=(task.id,))])


async def test_waiting_for_a_task_that_does_not_exist_is_refused(queue: QueueDriver) -> None:
    with pytest.raises(UnknownDependency):
        await queue.enqueue(depends_on=(queue.task().id,))


async def test_large_arguments_leave_the_record_and_come_back(queue: QueueDriver, payloads: Payloads) -> None:
    task = await queue.enqueue(arguments={"text": LARGE})

    stored = await queue.get(task)
    assert len(stored.args) < 300
    assert bytes(await payloads.load(stored.args)) == bytes(Raw(f'{{"text":"{LARGE}"}}'.encode()))


async def test_arguments_beyond_the_hard_limit_are_refused(queue: QueueDriver, stores: Stores) -> None:
    with pytest.raises(PayloadTooLarge, match=r"10,000"):
        await queue.enqueue(arguments={"text": "x" * 10_001})

    assert (await stores.tasks.find(TaskQuery())).tasks == []


async def test_the_same_key_with_the_same_large_arguments_is_the_same_task(queue: QueueDriver) -> None:
    first = await queue.enqueue(arguments={"text": LARGE}, idempotency_key="k")
    second = await queue.enqueue(arguments={"text": LARGE}, idempotency_key="k")

    assert second.id == first.id
    with pytest.raises(IdempotencyConflict):
        await queue.enqueue(arguments={"text": LARGE + "y"}, idempotency_key="k")


async def test_arguments_that_look_like_a_reference_are_not_taken_for_one(
    queue: QueueDriver, payloads: Payloads
) -> None:
    secret = await queue.enqueue(arguments={"text": LARGE})
    forged = bytes((await queue.get(secret)).args)

    kept = await payloads.spill(queue.task().id, "result", Raw(forged))

    assert bytes(await payloads.load(kept)) == forged


async def test_a_blob_that_is_not_what_was_stored_is_noticed(
    queue: QueueDriver, stores: Stores, payloads: Payloads
) -> None:
    task = await queue.enqueue(arguments={"text": LARGE})
    await stores.blobs.put_blob(f"{task.id}.args", b"something else")

    with pytest.raises(StoreCorrupt):
        await payloads.load((await queue.get(task)).args)


def test_a_definition_speaks_before_the_settings_and_none_is_a_choice() -> None:
    defaults = TaskSettings(max_attempts=7, timeout_s=5.0, result_ttl_s=60.0)

    plain = template_of(Definition(name="plain"), defaults)
    assert (plain.max_attempts, plain.timeout_ms, plain.result_ttl_ms) == (7, 5_000, 60_000)

    special = Definition(
        name="s", max_attempts=1, timeout_ms=0, result_ttl_ms=0, backoff=Backoff(base_ms=1), priority=2
    )
    task = template_of(special, defaults)
    assert (task.max_attempts, task.timeout_ms, task.result_ttl_ms, task.priority) == (1, None, None, 2)
    assert task.backoff.base_ms == 1


async def test_calls_of_one_batch_may_wait_for_each_other(queue: QueueDriver) -> None:
    template = template_of(Definition(name="send"), TaskSettings())
    first: Invocation[None] = Invocation(TaskPlan(template=template), Raw(b"{}"))
    outside = queue.task().id
    after = structs.replace(template, after_failure=AfterFailure.RUN)
    second: Invocation[None] = Invocation(TaskPlan(template=after, after=(first, outside)), Raw(b"{}"))

    one, two, again = make_tasks([first, second, first], now=queue.clock.now())

    assert two.depends_on == (one.id, again.id, outside)
    with pytest.raises(InvalidTask, match="not part of this batch"):
        make_tasks([second], now=queue.clock.now())


async def test_a_refused_or_repeated_call_leaves_no_large_arguments_behind(tmp_path: Path) -> None:
    stores = await open_stores(f"sqlite:///{tmp_path / 'ade.db'}")
    payloads = Payloads(stores.blobs, inline_limit=100, hard_limit=10_000)
    await stores.queues.configure(Queue(name="default", max_depth=1))

    def large(**fields: Any) -> Task:
        return Task(
            id=uuid7(stores.clock.now(), os.urandom(10)),
            name="work",
            args=Raw(b'{"a":"' + b"x" * 500 + b'"}'),
            **fields,
        )

    [kept] = await enqueue(stores, payloads, [large(idempotency_key="once")])
    await enqueue(stores, payloads, [large(idempotency_key="once")])
    with pytest.raises(QueueFull):
        await enqueue(stores, payloads, [large()])
    blobs = [path.name for path in (tmp_path / "ade.db.blobs").rglob("*.args")]
    assert blobs == [f"{kept.id}.args"]
    await stores.close()


async def test_a_full_disk_and_a_batch_with_one_call_too_large_leave_no_large_arguments_behind(tmp_path: Path) -> None:
    scarce = StoreSettings(min_free_percent=100.1)  # more than any disk has
    stores = await open_sqlite(f"sqlite:///{tmp_path / 'ade.db'}", scarce)
    payloads = Payloads(stores.blobs, inline_limit=100, hard_limit=10_000)

    def task(size: int) -> Task:
        args = Raw(b'{"a":"' + b"x" * size + b'"}')
        return Task(id=uuid7(stores.clock.now(), os.urandom(10)), name="work", args=args)

    with pytest.raises(PayloadTooLarge):
        await enqueue(stores, payloads, [task(500), task(20_000)])
    with pytest.raises(DiskFull):
        await enqueue(stores, payloads, [task(500)])
    assert [path for path in (tmp_path / "ade.db.blobs").rglob("*") if path.is_file()] == []
    await stores.close()


async def test_a_caller_that_gives_up_takes_no_arguments_away_from_a_task_that_was_stored(tmp_path: Path) -> None:
    stores = await open_stores(f"sqlite:///{tmp_path / 'ade.db'}")
    payloads = Payloads(stores.blobs, inline_limit=100, hard_limit=10_000)
    blobs_are_there = asyncio.Event()

    class Watched:
        """The real store of tasks, with a caller who leaves in the midst of the write."""

        async def add(self, tasks: Sequence[Task]) -> list[Task]:
            adding = asyncio.ensure_future(stores.tasks.add(tasks))
            await asyncio.wait([adding])
            blobs_are_there.set()
            await asyncio.Event().wait()
            return await adding

    watched = structs.replace(stores, tasks=cast("TaskStore", Watched()))
    args = Raw(b'{"a":"' + b"x" * 500 + b'"}')
    task = Task(id=uuid7(stores.clock.now(), os.urandom(10)), name="work", args=args)
    call = asyncio.ensure_future(enqueue(watched, payloads, [task]))
    await blobs_are_there.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    [stored] = await stores.tasks.get([task.id])
    assert stored is not None
    assert bytes(await payloads.load(stored.args)) == bytes(args)
    await stores.close()
