"""Tasks that name locks: a run has all of them or does not begin, and whoever waits takes no worker's place."""

import asyncio
import threading

import pytest

from ade import Context, Status, SyncContext, Task, read, write
from ade.locks.requests import request_id, request_of
from ade.tasks import decisions
from ade.tasks.api.queues import pause, resume
from ade.tasks.service import cancel, reschedule
from ade.worker.sweep import serve_locks, stall_lost
from tests.domain import (
    ClaimRequest,
    LockHolder,
    LockQuery,
    LockSpec,
    Queue,
    StoreLockClient,
    Stores,
    explain,
    set_value,
)
from tests.waiting import eventually
from tests.worker.harness import Gate, Workshop, plain, soon
from tests.worker.lock_contenders import Outsider

REPO, DB = "repo:app", "db:main"
WRITE_REPO: tuple[LockSpec, ...] = (write(REPO),)


@pytest.fixture
def workshop(workshop_anywhere: Workshop) -> Workshop:
    return workshop_anywhere


async def in_line(stores: Stores, task: Task) -> bool:
    [own] = await stores.locks.look("default", [request_id(task)])
    return own is not None and own.is_waiting


async def deferred(workshop: Workshop, task: Task) -> Task:
    async def look() -> Task | None:
        found = await workshop.get(task)
        return found if found.status is Status.PENDING and await in_line(workshop.stores, found) else None

    return await eventually(look)


async def test_a_task_that_waits_for_a_lock_takes_no_place_in_the_worker(workshop: Workshop) -> None:
    async def work(ctx: Context) -> int:
        return ctx.token(REPO) if ctx.name == "merge" else 0

    merge, other = workshop.handle(work, name="merge"), workshop.handle(work, name="other")
    ada = Outsider(workshop.stores, write(REPO))
    await ada.take()
    async with workshop.worker(concurrency=1):
        waiting = await workshop.enqueue(merge, locks=WRITE_REPO)
        await deferred(workshop, waiting)
        assert (await workshop.final(await workshop.enqueue(other))).status is Status.COMPLETED

        told = await explain(workshop.stores, waiting.id)
        assert told.codes[0] == "locked"
        assert "repo:app (exclusive), held by ada" in told.sentence

        await ada.leave()
        done = await workshop.final(waiting)
    assert done.status is Status.COMPLETED
    assert done.attempt == 1, "waiting cost it nothing"
    assert plain(done.result) > 0
    types = [one for one in await workshop.event_types(done) if one.startswith("task.")]
    assert types == [
        "task.created",
        "task.claimed",
        "task.deferred",
        "task.recalled",
        "task.claimed",
        "task.succeeded",
    ]
    assert await workshop.stores.locks.find(LockQuery()) == []


async def test_writers_come_one_after_the_other_in_the_order_they_were_asked_for(workshop: Workshop) -> None:
    inside, order, tokens = 0, list[int](), list[int]()

    async def work(number: int, ctx: Context) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1, "only one at a time"
        order.append(number)
        tokens.append(ctx.token(REPO))
        await asyncio.sleep(0)
        inside -= 1

    workshop.handle(work)
    async with workshop.worker(concurrency=8), workshop.worker(concurrency=8):
        tasks = [await workshop.enqueue("work", {"number": number}, locks=WRITE_REPO) for number in range(12)]
        for task in tasks:
            assert (await workshop.final(task)).status is Status.COMPLETED
    assert sorted(order) == list(range(12))
    assert tokens == sorted(set(tokens)), "tokens rise with every holder"


async def test_readers_read_together(workshop: Workshop) -> None:
    together = asyncio.Barrier(3)

    async def work() -> None:
        await together.wait()  # returns only if all three are here

    workshop.handle(work)
    async with workshop.worker():
        tasks = await workshop.enqueue_many("work", 3, locks=(read(DB),))
        for task in tasks:
            assert (await workshop.final(task)).status is Status.COMPLETED


async def test_all_locks_or_none(workshop: Workshop) -> None:
    async def work() -> None: ...

    workshop.handle(work)
    ada = Outsider(workshop.stores, read(DB))
    await ada.take()
    async with workshop.worker():
        both = await workshop.enqueue("work", locks=(write(DB), write("zone:1")))
        await deferred(workshop, both)
        one = await workshop.enqueue("work", locks=(read(REPO),))
        assert (await workshop.final(one)).status is Status.COMPLETED
        # What it could have had alone it does not keep from others, but its place in line it has.
        [request] = [one for one in await workshop.stores.locks.find(LockQuery()) if one.task_id == both.id]
        assert not request.is_granted
        await ada.leave()
        assert (await workshop.final(both)).status is Status.COMPLETED


async def test_a_task_that_is_cancelled_leaves_the_line(workshop: Workshop) -> None:
    async def work() -> None: ...

    workshop.handle(work)
    ada = Outsider(workshop.stores, write(REPO))
    await ada.take()
    async with workshop.worker():
        first, second = [await workshop.enqueue("work", locks=WRITE_REPO) for _ in range(2)]
        await deferred(workshop, first)
        await deferred(workshop, second)
        await cancel(workshop.stores, first.id, "not needed")
        assert not await in_line(workshop.stores, first)
        await ada.leave()
        assert (await workshop.final(second)).status is Status.COMPLETED


async def test_a_run_that_is_cancelled_lets_go(workshop: Workshop) -> None:
    gate = Gate()

    async def work(slow: bool) -> None:
        if slow:
            await gate()

    workshop.handle(work)
    async with workshop.worker():
        first = await workshop.enqueue("work", {"slow": True}, locks=WRITE_REPO)
        await soon(gate.reached)
        second = await workshop.enqueue("work", {"slow": False}, locks=WRITE_REPO)
        await deferred(workshop, second)
        await cancel(workshop.stores, first.id, "not needed")
        assert (await workshop.final(second)).status is Status.COMPLETED


async def test_a_run_that_fails_lets_go_and_asks_again(workshop: Workshop) -> None:
    tokens: list[int] = []

    async def work(ctx: Context) -> None:
        tokens.append(ctx.token(REPO))
        if len(tokens) < 3:
            raise ValueError("not yet")

    workshop.handle(work)
    done = await workshop.perform("work", locks=WRITE_REPO)
    assert done.status is Status.COMPLETED
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3
    assert await workshop.stores.locks.find(LockQuery()) == []


async def test_a_lock_that_is_taken_away_ends_the_run_and_it_is_tried_again(workshop: Workshop) -> None:
    gate, runs = Gate(), list[int]()

    async def work(ctx: Context) -> None:
        runs.append(ctx.token(REPO))
        if len(runs) == 1:
            await gate()

    workshop.handle(work)
    await set_value(workshop.stores, "lock.heartbeat_interval_s", 0.1, actor="ada")
    async with workshop.worker():
        task = await workshop.enqueue("work", locks=WRITE_REPO)
        await soon(gate.reached)
        running = await workshop.get(task)
        await workshop.stores.locks.take_away("default", request_id(running), reason="stuck", by="root")
        done = await workshop.final(task)
    assert done.status is Status.COMPLETED
    assert done.attempt == 2
    assert runs[1] > runs[0], "what the first run still writes is refused by the token"


async def test_whoever_takes_over_from_a_silent_worker_gets_a_higher_token(workshop: Workshop) -> None:
    async def work(ctx: Context) -> int:
        return ctx.token(REPO)

    workshop.handle(work)
    stores = workshop.stores
    holder = LockHolder(StoreLockClient(stores))
    task = await workshop.enqueue("work", locks=WRITE_REPO)
    [claimed] = await stores.tasks.claim(
        ClaimRequest(worker_id="silent", run_ids=["r" * 32], names=frozenset({"work"}), lease_ms=1)
    )
    held = await holder.take(request_of(claimed))
    assert held is not None
    token = held.token(REPO)

    async def stalled() -> int:
        [found] = await stores.tasks.get([task.id])
        assert found is not None
        lost = found.lease_until is not None and found.lease_until <= stores.clock.steady()
        return await stall_lost(stores, [found]) if lost else 0

    await eventually(stalled)
    async with workshop.worker():
        done = await workshop.final(task)
    await holder.close()
    assert plain(done.result) > token


async def test_a_lock_for_a_task_that_is_gone_goes_to_the_next(workshop: Workshop) -> None:
    """Whoever cancelled the task may have died before it left the line."""

    async def work() -> None: ...

    workshop.handle(work)
    stores = workshop.stores
    ada = Outsider(stores, write(REPO))
    await ada.take()
    async with workshop.worker():
        first, second = [await workshop.enqueue("work", locks=WRITE_REPO) for _ in range(2)]
        waiting = await deferred(workshop, first)
        await deferred(workshop, second)
        await stores.tasks.commit(decisions.cancel(waiting, "not needed", now=stores.clock.now()))
        await ada.leave()
        assert (await workshop.final(second)).status is Status.COMPLETED


async def test_the_sweep_recalls_what_nobody_else_does(workshop: Workshop) -> None:
    async def work() -> None: ...

    workshop.handle(work)
    stores = workshop.stores
    ada = Outsider(stores, write(REPO))
    await ada.take()
    async with workshop.worker():
        task = await workshop.enqueue("work", locks=WRITE_REPO)
        await deferred(workshop, task)
    await ada.leave()  # no worker is there to hear of it

    assert await serve_locks(stores) == 1
    assert (await workshop.get(task)).run_after <= stores.clock.now()
    assert await serve_locks(stores) == 0, "once is enough"
    async with workshop.worker():
        assert (await workshop.final(task)).status is Status.COMPLETED


async def test_a_task_of_a_paused_queue_keeps_no_lock_from_others(workshop: Workshop) -> None:
    async def work() -> None: ...

    workshop.handle(work)
    stores = workshop.stores
    ada = Outsider(stores, write(REPO))
    await ada.take()
    async with workshop.worker():
        paused = await workshop.enqueue("work", locks=WRITE_REPO, queue="slow")
        await deferred(workshop, paused)
        await pause(stores, Queue(name="slow"))
        other = await workshop.enqueue("work", locks=WRITE_REPO)
        await deferred(workshop, other)
        await ada.leave()

        async def swept() -> bool:
            await serve_locks(stores)
            return (await workshop.get(other)).is_final

        await eventually(swept)
        assert (await workshop.get(paused)).status is Status.PENDING
        await resume(stores, Queue(name="slow"))
        assert (await workshop.final(paused)).status is Status.COMPLETED


async def test_a_plain_function_has_its_locks_too(workshop: Workshop) -> None:
    def work(ctx: SyncContext) -> int:
        return ctx.token(REPO)

    workshop.handle(work)
    assert plain((await workshop.perform("work", locks=WRITE_REPO)).result) > 0


async def test_a_loop_that_is_blocked_keeps_its_locks(workshop: Workshop) -> None:
    """The lease thread renews them meanwhile."""
    blocked = threading.Event()

    async def work(ctx: Context) -> int:
        before = ctx.token(REPO)
        blocked.wait(3)  # no await: nothing else happens on this loop
        assert ctx.token(REPO) == before
        return before

    workshop.handle(work)
    async with workshop.worker(lease_s=2.0, heartbeat_s=0.2):
        task = await workshop.enqueue("work", locks=WRITE_REPO)
        done = await workshop.final(task)
    assert done.status is Status.COMPLETED, done.error
    assert done.attempt == 1


async def test_a_task_that_is_rescheduled_while_it_waits_for_a_lock_starts_at_its_new_time(workshop: Workshop) -> None:
    """A grant of the lock that it requested before does not start it, and keeps no other one out."""

    async def work() -> None: ...

    workshop.handle(work)
    ada = Outsider(workshop.stores, write(REPO))
    await ada.take()
    async with workshop.worker():
        waiting = await deferred(workshop, await workshop.enqueue("work", locks=WRITE_REPO))
        moved = await reschedule(workshop.stores, waiting.id, delay=3_600)
        assert await workshop.stores.locks.look("default", [request_id(waiting)]) == [None]
        await ada.leave()
        bob = Outsider(workshop.stores, write(REPO))
        await bob.take()  # nobody is before him
        await bob.leave()
        await serve_locks(workshop.stores)
        assert await workshop.get(moved) == moved

        await reschedule(workshop.stores, waiting.id, delay=0)
        assert (await workshop.final(moved)).status is Status.COMPLETED
    assert await workshop.stores.locks.find(LockQuery()) == []


async def test_a_late_grant_does_not_start_a_task_that_was_moved_meanwhile(workshop: Workshop) -> None:
    """The lock is granted after the new time is stored, and before the earlier request is withdrawn."""

    async def work() -> None: ...

    workshop.handle(work)
    ada = Outsider(workshop.stores, write(REPO))
    await ada.take()
    async with workshop.worker():
        waiting = await deferred(workshop, await workshop.enqueue("work", locks=WRITE_REPO))
    now = workshop.stores.clock.now()
    change = decisions.reschedule(waiting, now=now, run_after=now + 3_600_000)
    assert change is not None
    await workshop.stores.tasks.commit(change)
    await ada.leave()
    while await serve_locks(workshop.stores):
        pass
    assert (await workshop.get(waiting)).run_after == now + 3_600_000
    assert await workshop.stores.locks.find(LockQuery()) == []


async def test_a_task_that_gets_more_urgent_moves_ahead_among_those_that_wait_for_a_lock(workshop: Workshop) -> None:
    order = list[str]()

    async def work(ctx: Context) -> None:
        order.append(ctx.task_id)

    workshop.handle(work)
    ada = Outsider(workshop.stores, write(REPO))
    await ada.take()
    async with workshop.worker():
        first = await deferred(workshop, await workshop.enqueue("work", locks=WRITE_REPO))
        second = await deferred(workshop, await workshop.enqueue("work", locks=WRITE_REPO))
        await reschedule(workshop.stores, second.id, priority=0)
        await deferred(workshop, second)
        await ada.leave()
        for task in (first, second):
            assert (await workshop.final(task)).status is Status.COMPLETED
    assert order == [second.id, first.id]
