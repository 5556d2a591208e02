"""`ctx.lock`: locks that a handler takes while it runs, the same in every mode."""

import asyncio

import pytest

from ade import Ade, Context, Status, SyncContext, read, write
from ade.errors import InvalidLock, LockTimeout
from tests.domain import HandlerMode, LockQuery, set_value
from tests.waiting import eventually
from tests.worker import process_tasks
from tests.worker.harness import Gate, Workshop, plain, soon
from tests.worker.lock_contenders import Outsider

REPO, DB = "repo:app", "db:main"


@pytest.fixture
def workshop(workshop_anywhere: Workshop) -> Workshop:
    return workshop_anywhere


async def test_a_handler_holds_a_lock_for_a_block(workshop: Workshop) -> None:
    async def work(ctx: Context) -> tuple[int, str | None]:
        async with ctx.lock(REPO, purpose="to merge") as lock:
            [held] = await workshop.stores.locks.find(LockQuery())
            assert held.task_id == ctx.task_id
            lock.check()
            return lock.token(), held.purpose

    workshop.handle(work)
    done = await workshop.perform("work")
    token, purpose = plain(done.result)
    assert token > 0
    assert purpose == "to merge"
    assert await workshop.stores.locks.find(LockQuery()) == []


async def test_a_plain_function_does_the_same(workshop: Workshop) -> None:
    def work(ctx: SyncContext) -> int:
        with ctx.lock(write(REPO), read(DB)) as lock:
            with pytest.raises(InvalidLock):
                lock.token()
            return lock.token(REPO)

    workshop.handle(work)
    assert plain((await workshop.perform("work")).result) > 0
    assert await workshop.stores.locks.find(LockQuery()) == []


async def test_and_one_in_a_process_of_its_own(workshop: Workshop) -> None:
    workshop.handle(process_tasks.lock_and_tell, mode=HandlerMode.PROCESS)
    done = await workshop.perform("lock_and_tell", {"resource": REPO}, locks=(write(DB),))
    of_task, taken, again = plain(done.result)
    assert taken > of_task > 0
    assert again == of_task, "what its task has, it has"
    assert await workshop.stores.locks.find(LockQuery()) == []


async def test_one_who_must_not_wait_is_told_so(workshop: Workshop) -> None:
    async def work(ctx: Context) -> str:
        try:
            async with ctx.lock(REPO, wait=0):
                return "got it"
        except LockTimeout:
            return "somebody has it"

    workshop.handle(work)
    ada = Outsider(workshop.stores, write(REPO))
    await ada.take()
    assert plain((await workshop.perform("work")).result) == "somebody has it"


async def test_what_the_run_has_it_may_take_again(workshop: Workshop) -> None:
    async def work(ctx: Context) -> bool:
        async with ctx.lock(read(REPO)) as share, ctx.lock(DB) as outer, ctx.lock(read(DB)) as inner:
            return share.token() == ctx.token(REPO) and outer.token() == inner.token()

    workshop.handle(work)
    assert plain((await workshop.perform("work", locks=(write(REPO),))).result) is True
    assert await workshop.stores.locks.find(LockQuery()) == []


async def test_a_lock_that_is_lost_cancels_the_run(workshop: Workshop) -> None:
    gate, cancelled = Gate(), asyncio.Event()

    async def work(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        async with ctx.lock(REPO):
            try:
                await gate()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    workshop.handle(work)
    await set_value(workshop.stores, "lock.heartbeat_interval_s", 0.1, actor="ada")
    async with workshop.worker():
        task = await workshop.enqueue("work")
        await soon(gate.reached)
        [held] = await workshop.stores.locks.find(LockQuery())
        await workshop.stores.locks.take_away("default", held.id, reason="stuck", by="root")
        await soon(cancelled)
        done = await workshop.final(task)
    assert done.status is Status.COMPLETED
    assert done.attempt == 2


async def test_a_run_that_does_not_look_gets_no_token_once_the_lock_is_lost(workshop: Workshop) -> None:
    """A thread cannot be stopped; but what it writes under the lock is refused, and so is its result."""

    def work(ctx: SyncContext) -> str:
        if ctx.attempt > 1:
            return "under the lock"
        with ctx.lock(REPO) as lock:
            while not ctx.cancelled:
                pass
            with pytest.raises(Exception, match=r"no longer held|told to end"):
                lock.token()
        return "without it"

    workshop.handle(work)
    await set_value(workshop.stores, "lock.heartbeat_interval_s", 0.1, actor="ada")
    async with workshop.worker():
        task = await workshop.enqueue("work")

        async def taken_away() -> bool:
            for held in await workshop.stores.locks.find(LockQuery()):
                await workshop.stores.locks.take_away("default", held.id, reason="stuck", by="root")
                return True
            return False

        await eventually(taken_away)
        done = await workshop.final(task)
    assert plain(done.result) == "under the lock"


async def test_runs_that_wait_for_each_other_in_a_ring_get_out_of_it(workshop: Workshop) -> None:
    """One has A by its task and wants B, the other the other way round: one of them is told, and tries again."""
    both = asyncio.Barrier(2)
    met = 0

    async def work(first: str, second: str, ctx: Context) -> str:
        nonlocal met
        async with ctx.lock(first):
            if ctx.attempt == 1:
                met += 1
                await both.wait()
            async with ctx.lock(second):
                return "done"

    workshop.handle(work)
    async with workshop.worker():
        one = await workshop.enqueue("work", {"first": REPO, "second": DB})
        other = await workshop.enqueue("work", {"first": DB, "second": REPO})
        done = [await workshop.final(one), await workshop.final(other)]
    assert [task.status for task in done] == [Status.COMPLETED] * 2
    assert sorted(task.attempt for task in done) == [1, 2], "exactly one gave way"


async def test_a_function_that_is_called_directly_takes_real_locks() -> None:
    app = Ade("memory://")

    @app.task
    async def work(ctx: Context) -> int:
        async with ctx.lock(REPO) as lock:
            [held] = await (await app.open()).stores.locks.find(LockQuery())
            assert held.owner == "work"
            return lock.token()

    async with app:
        assert await work() > 0
        assert await (await app.open()).stores.locks.find(LockQuery()) == []


def test_a_plain_function_that_is_called_directly_does_too() -> None:
    app = Ade("memory://")

    @app.task
    def work(ctx: SyncContext) -> int:
        with ctx.lock(REPO) as lock:
            return lock.token()

    try:
        assert work() > 0
    finally:
        app.close().wait()
