"""Tasks of blocked and dead workers: they go to another worker soon, and what had not started uses no attempt."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from ade import Status, Task
from tests.domain import RedisSettings, open_stores
from tests.faults.on_servers import site_on
from tests.faults.workers import Site, until
from tests.servers.plugin import binary_or_skip
from tests.servers.server import Server
from tests.waiting import time_until

pytestmark = [pytest.mark.faults]

PATIENT = {"lease_s": 30.0, "heartbeat_s": 5.0}  # as they are by default
SMALL = 60
VOLATILE = RedisSettings(allow_volatile=True)
Pause = Callable[[], Awaitable[Callable[[], None]]]


class Place:
    """A site on some store, and how to have that store stand still."""

    def __init__(self, site: Site, pause: Pause) -> None:
        self.site = site
        self.pause = pause
        self.more = {"redis": {"allow_volatile": True}}
        self.gate, self.go = site.folder / "gate", site.folder / "go"

    async def block(self) -> Task:
        """A task that blocks its worker's event loop from when `go` exists until `gate` does."""
        return await self.site.enqueue(
            "block_between", {"go": str(self.go), "gate": str(self.gate)}, max_attempts=1, priority=0
        )

    async def small(self, **fields: Any) -> list[Task]:
        return [await self.site.enqueue("quick", max_attempts=1, **fields) for _ in range(SMALL)]

    async def all_completed(self, tasks: list[Task], within_s: float) -> None:
        """All of them have completed, each with one attempt."""
        async with asyncio.timeout(within_s):
            ended = [await self.site.final(task) for task in tasks]
        states = {(task.status, task.attempt) for task in ended}
        assert states == {(Status.COMPLETED, 1)}, [str(task.error) for task in ended if task.error]
        assert len(self.site.noted("ran")) == len(tasks)


@asynccontextmanager
async def on_sqlite(folder: Path) -> AsyncIterator[Place]:
    url = f"sqlite:///{folder / 'ade.db'}"
    stores = await open_stores(url)
    site = Site(folder, stores, url)

    async def pause() -> Callable[[], None]:
        connection = apsw.Connection(site.database)
        connection.set_busy_timeout(10_000)
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")

        def resume() -> None:
            connection.execute("ROLLBACK")
            connection.close()

        return resume

    try:
        yield Place(site, pause)
        assert await stores.maintenance.check_invariants() == []
    finally:
        site.end()
        await stores.close()


@asynccontextmanager
async def on_valkey(folder: Path) -> AsyncIterator[Place]:
    with Server(binary_or_skip("valkey")) as server:
        async with site_on(server.url, folder, VOLATILE) as site:

            async def pause() -> Callable[[], None]:
                server.pause()
                return server.resume

            yield Place(site, pause)
            await site.judge_events()


@pytest.fixture(params=[on_sqlite, on_valkey], ids=["sqlite", "valkey"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with request.param(tmp_path) as made:
        yield made


async def test_small_tasks_do_not_wait_behind_a_handler_that_blocks_its_event_loop(place: Place) -> None:
    """The worker that is blocked has claimed some of them; the other one gets these too, and none uses an attempt."""
    place.go.touch()
    blocking, small = await place.block(), await place.small()
    await place.site.worker(**PATIENT, **place.more)
    await place.site.until_noted("began")
    await place.site.worker(**PATIENT, **place.more)

    await place.all_completed(small, within_s=20)
    assert (await place.site.get(blocking)).status is Status.RUNNING
    place.gate.touch()
    assert (await place.site.final(blocking)).status is Status.COMPLETED


async def test_tasks_whose_claim_was_never_read_go_to_another_worker_without_using_an_attempt(place: Place) -> None:
    """The store commits the claim after the event loop was blocked, so that the worker does not know what it holds."""
    await place.site.worker(**PATIENT, **place.more)
    blocking = await place.block()
    await place.site.until_noted("began")
    due = place.site.stores.clock.now() + 2_000
    small = await place.small(run_after=due)
    resume = await place.pause()
    try:
        await until(lambda: time.time() * 1000 > due - 1_000, "a claim is in progress: they come every 200 ms")
        place.go.touch()
        await place.site.until_noted("blocked")
        await until(lambda: time.time() * 1000 > due, "the small tasks are due")
    finally:
        resume()
    await place.site.worker(**PATIENT, **place.more)

    await place.all_completed(small, within_s=20)
    assert (await place.site.get(blocking)).status is Status.RUNNING
    place.gate.touch()
    assert (await place.site.final(blocking)).status is Status.COMPLETED


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_what_a_dead_or_suspended_worker_had_claimed_and_not_started_uses_no_attempt(
    place: Place, number: signal.Signals
) -> None:
    place.go.touch()
    await place.block()
    small = await place.small()
    doomed = await place.site.worker(**PATIENT, **place.more)
    await place.site.until_noted("blocked")
    await place.site.suspend(doomed)
    doomed.send(number)
    heir = await place.site.worker(**PATIENT, **place.more)

    await place.all_completed(small, within_s=20)
    assert set(place.site.noted("ran")) == {heir.pid}


@pytest.mark.parametrize("with_watchdog", [False, True], ids=["alone", "with its watchdog"])
async def test_the_task_of_a_killed_worker_runs_again_on_the_same_host_within_two_seconds(
    place: Place, with_watchdog: bool
) -> None:
    """Its lease would last for 30 seconds."""
    doomed = await place.site.worker(**PATIENT, **place.more)
    task = await place.site.enqueue("first_time_hangs", max_attempts=2)
    await place.site.until_noted("began")
    heir = await place.site.worker(**PATIENT, **place.more)
    victims = [doomed.pid, *(doomed.children() if with_watchdog else ())]
    await place.site.suspend(doomed)  # at a moment when it does not hold the database
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    took = await time_until(lambda: len(place.site.noted("began")) == 2, "it runs again")
    final = await place.site.final(task)

    assert took < 2.0
    assert place.site.noted("began") == [doomed.pid, heir.pid]
    assert (final.status, final.attempt) == (Status.COMPLETED, 2)
    assert "task.stalled" in await place.site.event_types(task)


async def test_a_task_that_kills_its_worker_at_its_start_uses_an_attempt_each_time(place: Place) -> None:
    task = await place.site.enqueue("crash", max_attempts=2)
    for _ in range(2):
        doomed = await place.site.worker(**PATIENT, **place.more)
        assert await doomed.exit_code() == 9
    await place.site.worker(**PATIENT, **place.more)
    final = await place.site.final(task, within_s=20)

    assert (final.status, final.attempt, len(place.site.noted("began"))) == (Status.FAILED, 2, 2)


async def test_a_worker_that_lives_keeps_its_tasks_however_long_it_is_blocked(place: Place) -> None:
    """Another worker sees both of them: this one, and one that is dead."""
    place.go.touch()
    await place.site.worker(**PATIENT, **place.more)
    blocking = await place.block()
    await place.site.until_noted("blocked")
    watching = await place.site.worker(**PATIENT, **place.more)
    doomed = await place.site.worker(**PATIENT, **place.more)
    await place.site.suspend(doomed)
    doomed.send(signal.SIGKILL)
    await until(lambda: "worker.died" in watching.log(), "the dead worker is found")
    still = await place.site.get(blocking)
    place.gate.touch()
    final = await place.site.final(blocking)

    assert (still.status, still.attempt) == (Status.RUNNING, 1)
    assert watching.log().count("worker.died") == 1
    assert (final.status, final.attempt) == (Status.COMPLETED, 1)
