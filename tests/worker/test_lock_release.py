"""How runs let go of their locks when they end in unusual ways: nobody loses what another one has got since."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ade import Context, RateLimited, Status, SyncContext, write
from ade.errors import RunOver
from ade.tasks.service import cancel
from tests.domain import HandlerMode, LockQuery, LockSpec, LockStore
from tests.waiting import eventually
from tests.worker import process_tasks
from tests.worker.harness import Gate, Replaced, Workshop, plain, soon
from tests.worker.lock_contenders import Outsider

REPO = "repo:app"
WRITE_REPO: tuple[LockSpec, ...] = (write(REPO),)


@pytest.fixture
def workshop(workshop_anywhere: Workshop) -> Workshop:
    return workshop_anywhere


async def holders(workshop: Workshop) -> list[str]:
    return [one.owner for one in await workshop.stores.locks.find(LockQuery()) if one.is_granted]


class LateRelease:
    """Locks whose release reaches the store only when it is let through."""

    def __init__(self, workshop: Workshop) -> None:
        self._real = workshop.stores.locks
        self.gate = Gate()
        self.stores = replace(workshop.stores, locks=cast(LockStore, Replaced(self._real, {"release": self._release})))

    async def _release(self, namespace: str, ids: Sequence[str]) -> Any:
        await self.gate()
        return await self._real.release(namespace, ids)


async def test_a_run_that_is_handed_back_lets_go_before_another_one_can_have_its_task(workshop: Workshop) -> None:
    """The next run asks under the same name: a release that came after it would take its locks away."""
    gate, tokens = Gate(), list[int]()

    async def work(ctx: Context) -> None:
        tokens.append(ctx.token(REPO))
        if len(tokens) == 1:
            await gate()

    workshop.handle(work)
    late = LateRelease(workshop)
    async with workshop.worker(stores=late.stores, grace_s=0.0) as first:
        task = await workshop.enqueue("work", locks=WRITE_REPO)
        await soon(gate.reached)
        async with workshop.worker():
            ending = asyncio.create_task(first.end())
            await soon(late.gate.reached)
            assert (await workshop.get(task)).status is Status.RUNNING, "nobody else can have it before that"
            late.gate.open()
            done = await workshop.final(task)
            await ending
    assert done.status is Status.COMPLETED
    assert done.attempt == 1, "being handed back cost it nothing"
    assert tokens[1] > tokens[0], "what the first run may still write is refused by the token"
    assert await holders(workshop) == []


async def test_runs_that_are_asked_for_patience_take_turns_and_are_not_forgotten(workshop: Workshop) -> None:
    """They do not count, so the next run of each asks under the same name, and often at once."""
    inside, seen = 0, dict[int, list[int]]()

    async def work(number: int, ctx: Context) -> None:
        nonlocal inside
        inside += 1
        try:
            assert inside == 1, "only one at a time"
            seen.setdefault(number, []).append(ctx.token(REPO))
            await asyncio.sleep(0)
        finally:
            inside -= 1
        if len(seen[number]) < 3:
            raise RateLimited(retry_after=0)

    workshop.handle(work)
    async with workshop.worker(concurrency=4), workshop.worker(concurrency=4):
        tasks = [await workshop.enqueue("work", {"number": number}, locks=WRITE_REPO) for number in range(6)]
        for task in tasks:
            assert (await workshop.final(task)).status is Status.COMPLETED
    assert all(len(tokens) == 3 and tokens == sorted(set(tokens)) for tokens in seen.values()), seen


async def test_a_thread_that_still_waits_when_its_run_is_over_gets_nothing(workshop: Workshop) -> None:
    """It cannot be stopped; but a lock that it got now would be renewed and never be released."""
    waits, told = threading.Event(), list[str]()

    def work(ctx: SyncContext) -> None:
        waits.set()
        try:
            with ctx.lock(REPO):
                told.append("it has the lock")
        except RunOver:
            told.append("its run is over")

    async def follow() -> None: ...

    workshop.handle(work)
    workshop.handle(follow)
    ada = Outsider(workshop.stores, write(REPO))
    await ada.take()
    async with workshop.worker(cancel_grace_s=0.05, concurrency=1):
        task = await workshop.enqueue("work")
        await asyncio.to_thread(waits.wait)
        await eventually(lambda: in_line(workshop))
        await cancel(workshop.stores, task.id, "not needed")
        await workshop.final(await workshop.enqueue("follow"))  # there is room, so the run is over
        await ada.leave()
        await eventually(lambda: told_of(told))
        assert told == ["its run is over"]
        assert await holders(workshop) == []


async def in_line(workshop: Workshop) -> bool:
    return any(one.is_waiting for one in await workshop.stores.locks.find(LockQuery()))


async def told_of(told: list[str]) -> bool:
    return bool(told)


async def test_a_process_that_dies_while_it_waits_for_a_lock_ends_its_run(workshop: Workshop) -> None:
    workshop.handle(process_tasks.die_in_line, mode=HandlerMode.PROCESS)
    ada = Outsider(workshop.stores, write(REPO))
    await ada.take()
    async with workshop.worker():
        done = await workshop.final(await workshop.enqueue("die_in_line", {"resource": REPO}, max_attempts=1))
        assert done.status is Status.FAILED
        assert done.error is not None
        assert done.error.type == "ProcessDied"
        await eventually(lambda: nobody_waits(workshop))
    assert await holders(workshop) == ["ada"]


async def nobody_waits(workshop: Workshop) -> bool:
    return not await in_line(workshop)


async def test_a_lock_of_a_run_lasts_until_the_last_block_that_relies_on_it(workshop: Workshop) -> None:
    async def work(ctx: Context) -> tuple[int, int]:
        inside, alone = asyncio.Event(), asyncio.Event()

        async def other() -> int:
            async with ctx.lock(REPO) as lock:
                inside.set()
                await alone.wait()
                lock.check()
                return len(await holders(workshop))

        async with ctx.lock(REPO):
            beside = asyncio.create_task(other())
            await inside.wait()
        alone.set()
        return await beside, len(await holders(workshop))

    workshop.handle(work)
    assert plain((await workshop.perform("work")).result) == [1, 0]


async def test_what_a_run_leaves_behind_gets_no_lock_and_no_token(workshop: Workshop) -> None:
    over, told = Gate(), asyncio.Queue[str]()
    jobs: list[asyncio.Task[None]] = []

    async def work(ctx: Context) -> None:
        async def linger() -> None:
            await over()
            for attempt in (ctx.lock("zone:1").__aenter__(), _token(ctx)):
                try:
                    await attempt
                except Exception as error:
                    told.put_nowait(type(error).__name__)

        jobs.append(asyncio.create_task(linger()))

    workshop.handle(work)
    async with workshop.worker():
        done = await workshop.final(await workshop.enqueue("work", locks=WRITE_REPO))
        assert done.status is Status.COMPLETED
        over.open()
        await asyncio.gather(*jobs)
    assert [told.get_nowait(), told.get_nowait()] == ["RunOver", "LockLost"]
    assert await holders(workshop) == []


async def _token(ctx: Context) -> int:
    return ctx.token(REPO)


async def test_a_run_that_has_ended_renews_none_of_its_locks(workshop: Workshop) -> None:
    """A release that takes long must not keep the locks that come after it."""

    async def work(ctx: Context) -> None:
        for resource in (REPO, "repo:other"):
            await ctx.lock(resource).__aenter__()
        raise ValueError("done")

    workshop.handle(work)
    late = LateRelease(workshop)
    task = await workshop.enqueue("work", max_attempts=1)
    async with workshop.worker(stores=late.stores) as shift:
        await soon(late.gate.reached)
        assert shift.runtime._backend is not None
        assert shift.runtime._backend._locks.holder._renewals.held == {}
        late.gate.open()
        assert (await workshop.final(task)).status is Status.FAILED
    assert await holders(workshop) == []
