"""The acceptance criteria of the task queue protocol, one story each, told through the Python API.

1. A task that succeeds is created, claimed and succeeded, and nothing of it stays behind.
2. A task that fails is tried again as often as it may be, then is a dead letter, and the log tells all of it.
3. When a worker stops and another one starts, the task is taken over once its lease ran out, and completed.
4. An external side effect under one idempotency key is not performed twice.
"""

import asyncio

import pytest

from ade import Ade, Context, Status, Task, TaskFailed, TaskHandle
from ade.errors import StaleLease
from ade.settings.sections import SweepSettings
from ade.tasks.dead_letters import groups
from ade.testing import TestKit
from ade.worker.backend import WorkerOptions
from ade.worker.poller import fresh_ids
from tests.domain import FINAL_EVENTS, ClaimRequest, Event, Succeeded, settle

DEFAULT_LEASE_S = WorkerOptions().lease_s
DEFAULT_SWEEP_S = SweepSettings().interval_s


async def events_of(task: TaskHandle[object]) -> list[Event]:
    return [event async for event in task.events()]


async def statuses(kit: TestKit) -> dict[Status, int]:
    """How many tasks have each status, by the store's own counters."""
    return {tally.status: tally.count for tally in await kit.stores.queues.tallies() if tally.count}


async def test_1_a_successful_task_is_created_claimed_and_succeeded_and_nothing_stays_behind(
    ade: Ade, kit: TestKit
) -> None:
    @ade.task
    async def add(one: int, two: int) -> int:
        return one + two

    task = await add.enqueue(2, 3)
    assert await statuses(kit) == {Status.PENDING: 1}
    await kit.drain()

    assert await task.result() == 5
    events = await events_of(task)
    assert [event.type for event in events] == ["task.created", "task.claimed", "task.succeeded"]
    assert events[1].payload["run_id"] == events[2].payload["run_id"]
    assert await statuses(kit) == {Status.COMPLETED: 1}  # nothing is pending, nothing is running
    record = await task.get()
    assert (record.worker_id, record.lease_until) == (None, None)


async def test_2_a_failing_task_is_retried_to_its_last_attempt_then_a_dead_letter_with_a_complete_log(
    ade: Ade, kit: TestKit
) -> None:
    @ade.task(max_attempts=3)
    async def post(address: str) -> None:
        raise ConnectionError(f"{address} does not answer")

    task = await post.enqueue("example.org")
    await kit.finish()

    with pytest.raises(TaskFailed, match=r"example\.org does not answer"):
        await task.result()
    assert [(event.type, event.payload.get("attempt")) for event in await events_of(task)] == [
        ("task.created", None),
        ("task.claimed", 1),
        ("task.retry_scheduled", 1),
        ("task.claimed", 2),
        ("task.retry_scheduled", 2),
        ("task.claimed", 3),
        ("task.failed", 3),
        ("task.dlq", 3),
    ]
    record = await task.get()
    assert (record.status, record.attempt) == (Status.FAILED, 3)
    [letters] = await groups(kit.stores)
    assert (letters.name, letters.error_type, letters.newest) == ("post", "ConnectionError", (task.id,))


async def test_3_the_task_of_a_stopped_worker_is_reclaimed_by_the_next_one_and_completed(
    ade: Ade, kit: TestKit
) -> None:
    @ade.task
    async def build() -> str:
        return "built"

    task = await build.enqueue()
    late = await claimed_by_a_worker_that_then_stops(kit, "first-worker")
    await kit.drain()
    assert await task.status() is Status.RUNNING  # the lease still holds: nobody else may touch it
    await kit.advance(DEFAULT_LEASE_S + DEFAULT_SWEEP_S)
    await kit.drain()

    assert await task.result() == "built"
    events = await events_of(task)
    assert [event.type for event in events] == [
        "task.created",
        "task.claimed",
        "task.stalled",
        "task.claimed",
        "task.reclaimed",
        "task.succeeded",
    ]
    reclaimed, second_claim = events[4].payload, events[3].payload
    assert (reclaimed["previous_worker"], reclaimed["new_worker"]) == ("first-worker", second_claim["worker"])
    assert reclaimed["new_worker"] != "first-worker"

    with pytest.raises(StaleLease):  # the stopped worker comes back with a result of its own
        await kit.stores.tasks.commit(settle(late, Succeeded(late.args), now=kit.clock.now(), randomness=0.5))
    assert await task.result() == "built"
    assert [event.type for event in await events_of(task) if event.type in FINAL_EVENTS] == ["task.succeeded"]


class TestIdempotency:
    """Criterion 4, at each of the places where an effect could be repeated."""

    async def test_4_the_same_request_twice_is_one_task_and_one_effect(self, ade: Ade, kit: TestKit) -> None:
        charged: list[int] = []

        @ade.task
        async def charge(order: int) -> None:
            charged.append(order)

        first = await charge.with_options(key="order-7").enqueue(7)
        await kit.drain()
        again = await charge.with_options(key="order-7").enqueue(7)
        await kit.drain()

        assert again == first
        assert charged == [7]

    async def test_4_a_task_that_fails_after_its_effect_does_not_repeat_it(self, ade: Ade, kit: TestKit) -> None:
        charged: list[int] = []

        def pay(order: int) -> str:
            charged.append(order)
            return f"receipt {len(charged)}"

        @ade.task
        async def charge(ctx: Context, order: int) -> str:
            receipt = await ctx.once(f"charge-{order}", pay, order)
            if ctx.attempt == 1:
                raise ConnectionError("the receipt could not be sent")
            return receipt

        task = await charge.enqueue(7)
        await kit.finish()

        assert await task.result() == "receipt 1"  # the stored answer of the one and only payment
        assert (await task.get()).attempt == 2
        assert charged == [7]

    async def test_4_a_worker_that_stops_in_the_middle_of_an_effect_leaves_it_unknown_not_repeated(
        self, ade: Ade, kit: TestKit
    ) -> None:
        charged: list[int] = []
        paid, never = asyncio.Event(), asyncio.Event()

        async def pay(order: int) -> str:
            charged.append(order)
            paid.set()
            await never.wait()  # the answer never comes: the worker is gone before
            return "receipt"

        @ade.task
        async def charge(ctx: Context, order: int) -> str:
            return await ctx.once(f"charge-{order}", pay, order)

        task = await charge.enqueue(7)
        worker = asyncio.create_task(kit.drain())
        await asyncio.wait_for(paid.wait(), 30)
        worker.cancel()  # without a word to the store, like a process that was killed
        await asyncio.gather(worker, return_exceptions=True)
        await kit.advance(DEFAULT_LEASE_S + DEFAULT_SWEEP_S)
        await kit.drain()

        with pytest.raises(TaskFailed, match="unknown") as failure:
            await task.result()
        assert failure.value.error is not None
        assert failure.value.error.type == "EffectUnknown"
        assert charged == [7]


async def claimed_by_a_worker_that_then_stops(kit: TestKit, worker_id: str) -> Task:
    """A worker takes the task and is never heard of again. Answers the task as that worker knows it."""
    request = ClaimRequest(
        worker_id=worker_id,
        run_ids=fresh_ids(1),
        names=kit.app.registry.names(),
        lease_ms=round(DEFAULT_LEASE_S * 1000),
    )
    [task] = await kit.stores.tasks.claim(request)
    return task
