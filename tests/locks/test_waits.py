"""Waits of every kind: a deadlock is found and resolved within seven seconds, on every store; time is the story's."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ade import Task
from ade.errors import DeadlockVictim
from ade.locks.client import LockWaiters
from ade.locks.detector import DeadlockDetector, TaskWaits
from ade.locks.model import write
from ade.locks.requests import request_id, request_of
from ade.locks.views import WAITS, RunWait, view_locks
from ade.testing import TestClock
from ade.worker.instrumentation import RunReference
from tests.conformance.backends import BACKENDS, sound
from tests.conformance.scene import NAMES, Scene
from tests.domain import (
    Agent,
    Definition,
    LockLimits,
    LockMode,
    LockRequest,
    Stores,
    Worker,
    explain,
    validate_request,
)

WITHIN_S = 7.0
WRITE = LockMode.EXCLUSIVE


class Play:
    """Running tasks that hold and wait for things, and a clock that moves only while everyone waits."""

    def __init__(self, stores: Stores, clock: TestClock) -> None:
        self.stores, self.clock = stores, clock
        self.scene = Scene(stores, clock)
        self.began = clock.steady()
        self.is_over = asyncio.Event()
        self.detector = DeadlockDetector(stores.locks, stores, time=self.time)
        self.runs = TaskWaits(stores, self.detector, is_on=self._yes, time=self.time, rest=self._rest)
        self.lockers = LockWaiters(
            stores.locks,
            finds_rings=self._yes,
            detector=DeadlockDetector(stores.locks, stores, time=self.time),
            randomness=lambda: 1.0,
            time=self.time,
            rest=self._rest,
        )
        self._names = 0
        self._resting: list[tuple[float, asyncio.Event, asyncio.Future[None]]] = []
        self._moving: asyncio.Task[None] | None = None
        self.waiting: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self.clock.steady() / 1000

    async def _yes(self) -> bool:
        return True

    async def _rest(self, news: asyncio.Event, seconds: float) -> None:
        rest = (self.time() + seconds, news, asyncio.get_running_loop().create_future())
        self._resting.append(rest)
        if self._moving is None:
            self._moving = asyncio.create_task(self._move_time())
        await rest[2]

    async def _move_time(self) -> None:
        """Let time pass up to the earliest end of a rest, but only while everyone rests, and for seven seconds."""
        while self.clock.steady() - self.began < WITHIN_S * 1000:
            await asyncio.sleep(0)
            jobs = [job for job in (self.runs._job, self.lockers._job) if job is not None and not job.done()]
            woken = next((rest for rest in self._resting if rest[1].is_set()), None)
            if woken is None and jobs and len(self._resting) >= len(jobs):
                woken = min(self._resting, key=lambda rest: rest[0])
                self.clock.advance(max(woken[0] - self.time(), 0.0))
            if woken is not None:
                self._resting.remove(woken)
                woken[2].set_result(None)
        self.is_over.set()

    async def start(self, name: str = "send", **fields: Any) -> Task:
        return await self.scene.start(name, **fields)

    async def asks(self, run: Task, resource: str, namespace: str = "default") -> LockRequest:
        """A running task wants a lock, as `ctx.lock` does; it has it, or waits for it."""
        self._names += 1
        request = validate_request(
            id=f"r{self._names}",
            owner=f"task:{run.id}",
            scope=request_id(run),
            wanted=[(resource, WRITE)],
            namespace=namespace,
            purpose=run.name,
            task_id=run.id,
            ttl_ms=3_600_000,
        )
        answer = await self.stores.locks.acquire(request, wait_ms=None, limits=LockLimits())
        assert answer is not None
        if answer.is_waiting:
            self._begin(self.lockers.wait(self.lockers.expect(answer)))
        return answer

    async def defer(self, task: Task) -> LockRequest:
        """A worker has asked for the locks of a task, which waits for them in line; or they are granted."""
        answer = await self.stores.locks.acquire(request_of(task), wait_ms=None, limits=LockLimits())
        assert answer is not None
        return answer

    def awaits(self, run: Task, other: Task) -> None:
        """A running task waits for the end of another one, as `result()` does."""
        assert run.run_id is not None
        self._begin(self.runs.wait(RunReference(run.id, run.run_id), other.id, asyncio.Event().wait()))

    def _begin(self, waiting: Coroutine[Any, Any, Any]) -> None:
        self.waiting.append(asyncio.create_task(waiting))

    async def victims(self) -> list[str]:
        """The messages of the victims, within seven seconds or until the first one."""
        over = asyncio.create_task(self.is_over.wait())
        async with asyncio.timeout(60):
            await asyncio.wait({over, *self.waiting}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        assert self.clock.steady() - self.began <= (WITHIN_S + 1) * 1000
        errors = [one.exception() for one in self.waiting if one.done()]
        return [str(error) for error in errors if isinstance(error, DeadlockVictim)]

    async def close(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
        await self.lockers.close()
        await self.runs.close()
        for one in self.waiting:
            one.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)


@pytest.fixture(params=["memory", "sqlite", "valkey", "cluster"])
async def play(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Play]:
    clock = TestClock()
    async with sound(await BACKENDS[request.param].open(tmp_path, clock)) as stores:
        made = Play(stores, clock)
        yield made
        await made.close()


async def parent_holds_what_its_child_needs(play: Play) -> None:
    parent = await play.start()
    await play.asks(parent, "repo")
    child = await play.scene.add(locks=(write("repo"),), run_after=play.clock.now() + 60_000)
    await play.defer(child)
    play.awaits(parent, child)


async def child_has_not_asked_yet(play: Play) -> None:
    parent = await play.start()
    await play.asks(parent, "repo")
    play.awaits(parent, await play.scene.add(locks=(write("repo"),)))


async def lock_against_concurrency(play: Play) -> None:
    await play.scene.define("build", concurrency=1)
    builder, sender = await play.start("build"), await play.start("send")
    await play.asks(sender, "repo")
    await play.asks(builder, "repo")
    play.awaits(sender, await play.scene.add("build"))


async def two_namespaces(play: Play) -> None:
    one, other = await play.start(), await play.start()
    await play.asks(one, "db", "east")
    await play.asks(other, "db", "west")
    await play.asks(one, "db", "west")
    await play.asks(other, "db", "east")


async def dependency(play: Play) -> None:
    parent = await play.start()
    await play.asks(parent, "repo")
    first = await play.scene.add(locks=(write("repo"),))
    second = await play.scene.add(depends_on=(first.id,), waiting_on=1)
    play.awaits(parent, second)


async def limit_by_key(play: Play) -> None:
    await play.scene.define("build", concurrency_per_key=1)
    parent = await play.start("build", concurrency_key="app")
    play.awaits(parent, await play.scene.add("build", concurrency_key="app"))


async def worker_places(play: Play) -> None:
    await employ(play, concurrency=1)
    parent = await play.start()
    play.awaits(parent, await play.scene.add())


async def agent_capacity(play: Play) -> None:
    await play.stores.agents.register(Agent(id="ann", max_tasks=1))
    await employ(play, concurrency=10, agent="ann")
    parent = await play.start()
    assert parent.run_id is not None
    await play.stores.agents.take("ann", [parent.run_id], lease_ms=3_600_000)
    play.awaits(parent, await play.scene.add())


async def namespaces_limits_and_results(play: Play) -> None:
    """The sender holds a lock in one namespace and waits for a build; the builder waits for a report, which needs a
    lock in another namespace, which the sender holds too."""
    await play.scene.define("build", concurrency=1)
    builder, sender = await play.start("build"), await play.start("send")
    await play.asks(sender, "db", "east")
    await play.asks(sender, "repo")
    report = await play.scene.add("report", locks=(write("repo"),))
    await play.defer(report)
    play.awaits(builder, report)
    play.awaits(sender, await play.scene.add("build"))


async def employ(play: Play, **fields: Any) -> None:
    """A worker comes that takes every task."""
    now = play.clock.now()
    worker = Worker(id="w1", hostname="here", pid=1, started_at=now, version="0", names=tuple(sorted(NAMES)), **fields)
    await play.stores.workers.register(worker, [Definition(name=name) for name in NAMES], ttl_ms=60_000)


DEADLOCKS = [
    parent_holds_what_its_child_needs,
    child_has_not_asked_yet,
    lock_against_concurrency,
    two_namespaces,
    dependency,
    limit_by_key,
    worker_places,
    agent_capacity,
    namespaces_limits_and_results,
]


@pytest.mark.parametrize("story", DEADLOCKS)
async def test_a_deadlock_has_one_victim_and_one_line_in_the_log(
    play: Play, story: Callable[[Play], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    await story(play)

    with caplog.at_level(logging.WARNING, logger="ade.locks"):
        victims = await play.victims()

    assert len(victims) == 1
    assert [record.message.split()[0] for record in caplog.records] == ["lock.deadlock"]


async def one_place_is_free_soon(play: Play) -> None:
    await play.scene.define("build", concurrency=2)
    parent, _busy = await play.start("build"), await play.start("build")
    play.awaits(parent, await play.scene.add("build"))


async def one_of_two_children_can_go_on(play: Play) -> None:
    parent = await play.start()
    await play.asks(parent, "repo")
    play.awaits(parent, await play.scene.add(locks=(write("repo"),)))
    play.awaits(parent, await play.scene.add())


async def another_worker_has_room(play: Play) -> None:
    await worker_places(play)
    now, names = play.clock.now(), tuple(sorted(NAMES))
    other = Worker(id="w2", hostname="here", pid=2, started_at=now, version="0", names=names, concurrency=1)
    await play.stores.workers.register(other, [], ttl_ms=60_000)


async def someone_else_works_under_the_lock(play: Play) -> None:
    parent, other = await play.start(), await play.start()
    await play.asks(other, "repo")
    child = await play.scene.add(locks=(write("repo"),))
    await play.defer(child)
    play.awaits(parent, child)


@pytest.mark.parametrize(
    "story",
    [one_place_is_free_soon, one_of_two_children_can_go_on, another_worker_has_room, someone_else_works_under_the_lock],
)
async def test_where_someone_can_go_on_nobody_is_a_victim(play: Play, story: Callable[[Play], Awaitable[None]]) -> None:
    await story(play)

    assert await play.victims() == []


async def test_where_only_the_order_of_a_line_is_wrong_the_child_passes_and_nobody_is_a_victim(play: Play) -> None:
    parent = await play.start()
    await play.asks(parent, "db")
    both = await play.scene.add("report", locks=(write("db"), write("repo")))
    await play.defer(both)
    child = await play.scene.add(locks=(write("repo"),))
    assert (await play.defer(child)).is_waiting, "behind one that waits for the parent"
    play.awaits(parent, child)

    assert await play.victims() == []
    [granted] = await play.stores.locks.look("default", [request_id(child)])
    assert granted is not None
    assert granted.is_granted


async def test_locks_of_a_task_that_is_not_claimed_yet_go_back_and_nobody_is_a_victim(play: Play) -> None:
    await play.scene.define("build", concurrency=1)
    first = await play.start("build")
    held = await play.asks(first, "repo")
    second = await play.scene.add("build", locks=(write("repo"),))
    assert (await play.defer(second)).is_waiting
    await play.stores.locks.release("default", [held.id])  # so it is granted to the second, which cannot be claimed
    await play.asks(first, "repo")

    assert await play.victims() == []
    assert [one.result().is_granted for one in play.waiting] == [True], "the first one has it now"


async def test_explain_names_the_whole_cycle_with_tasks_authors_and_resources(play: Play) -> None:
    parent = await play.start(author_id="ada")
    await play.asks(parent, "repo")
    child = await play.scene.add("build", locks=(write("repo"),), author_id="ada")
    await play.defer(child)
    wait = {"task_id": parent.id, "run_id": str(parent.run_id), "awaits": child.id}
    await store_wait(play, **wait)
    parent_text, child_text = f"task {parent.id} (send, by ada)", f"task {child.id} (build, by ada)"

    for task in (parent, child):
        explained = await explain(play.stores, task.id)
        assert explained.reasons[0].code == "deadlock"
        assert sorted(explained.reasons[0].facts["cycle"]) == sorted(  # type: ignore[call-overload]  # a list of texts
            [
                f"{parent_text} waits for {child_text}",
                f"{child_text} waits for the lock on repo, held by {parent_text}",
            ]
        )
    [lock] = await view_locks(play.stores, namespace="default", resource="repo")
    assert len(lock.deadlock) == 2
    assert any("held by" in sentence for sentence in lock.deadlock)


async def store_wait(play: Play, **fields: str) -> None:
    record = RunWait(**fields, expires_at=play.clock.now() + 15_000)
    await play.stores.documents.write([WAITS.put("w", record, seen=0)])


async def test_a_short_wait_stores_nothing(play: Play) -> None:
    parent, child = await play.start(), await play.scene.add()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended.set_result("done")

    async def rest(_news: asyncio.Event, _seconds: float) -> None:
        await asyncio.sleep(0)

    waits = TaskWaits(play.stores, play.detector, is_on=play._yes, time=play.time, rest=rest)
    assert await waits.wait(RunReference(parent.id, str(parent.run_id)), child.id, ended) == "done"
    assert await WAITS.all(play.stores) == {}


async def test_what_was_stored_about_a_wait_is_gone_after_it(play: Play) -> None:
    await child_has_not_asked_yet(play)
    await play.victims()
    await play.close()

    assert await WAITS.all(play.stores) == {}


async def test_a_run_that_waits_for_its_own_task_is_told_at_once(play: Play) -> None:
    run = await play.start()

    with pytest.raises(DeadlockVictim, match="its own result"):
        await play.runs.wait(RunReference(run.id, str(run.run_id)), run.id, asyncio.Event().wait())
