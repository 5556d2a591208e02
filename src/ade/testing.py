"""Test your tasks without sleeping: a clock you move, and a worker that runs what is due and then stops.

async def test_a_failed_summary_is_tried_again_after_a_second():
    async with harness(ade) as kit:
        task = await summarise.enqueue("https://example.org")
        await kit.drain()
        await kit.advance(1)
        await kit.drain()
        assert await task.status() == "completed"
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from ade.app.ade import Ade
from ade.approvals.service import sweep_reviews
from ade.approvals.submission import enqueue_guarded
from ade.composition.app_store import OpenStore
from ade.settings.runtime import default_timeout_ms
from ade.stores.ports import WORK, ClaimRequest, Stores
from ade.tasks.model import Task
from ade.tasks.schedules import declare, fire_due
from ade.worker.backend import WorkerOptions
from ade.worker.executor import RunExecutor
from ade.worker.poller import fresh_ids
from ade.worker.state import ClaimTrigger
from ade.worker.store_backend import Setup, StoreBackend
from ade.worker.sweep import expire_results, serve_locks, settle_due
from ade.worker.timer import SharedTimer

__all__ = ["TestClock", "TestKit", "harness"]

_START = datetime(2030, 1, 1, tzinfo=UTC)
_WORKER = "test-worker"
_LOOK_S = 0.05  # how often a drain polls for tasks that running tasks enqueued


class TestClock:
    """A clock that stands still until it is moved."""

    __test__ = False  # pytest collects classes with such names

    def __init__(self, start: datetime = _START) -> None:
        self._wall_ms = round(start.timestamp() * 1000)
        self._steady_ms = self._wall_ms

    def now(self) -> int:
        return self._wall_ms

    def steady(self) -> int:
        return self._steady_ms

    def judged(self, lease_ms: int) -> int:
        return self._steady_ms

    def advance(self, by: float | timedelta) -> None:
        """Let time pass, for wall and leases alike."""
        passed = _milliseconds(by)
        if passed < 0:
            raise ValueError("time does not run backward; `jump_wall` sets the wall clock back")
        self._wall_ms += passed
        self._steady_ms += passed

    def jump_wall(self, by: float | timedelta) -> None:
        """Put the wall clock forward or back, as an administrator or a time server would."""
        self._wall_ms += _milliseconds(by)


def _milliseconds(by: float | timedelta) -> int:
    return round((by.total_seconds() if isinstance(by, timedelta) else by) * 1000)


class TestKit:
    """An app on a store and a clock of its own. Made by `harness`."""

    __test__ = False

    def __init__(self, app: Ade, opened: OpenStore, clock: TestClock, capabilities: Iterable[str] = ()) -> None:
        self.app = app
        self.clock = clock
        self.stores: Stores = opened.stores
        self._opened = opened
        self._capabilities = frozenset(capabilities)

    async def drain(self) -> int:
        """Run everything that is due, and what that enqueues, until nothing can be claimed. Answers how many runs."""
        declared = (need for handler in self.app.registry for need in handler.definition.needs)
        return await _TestWorker(self.app, self._opened, self._capabilities.union(declared)).work()

    async def advance(self, by: float | timedelta) -> None:
        """Let time pass, then do what is done on a timer: schedules, lost leases, deadlines, expired results."""
        self.clock.advance(by)
        await settle_due(self.stores)
        await serve_locks(self.stores)
        limit = partial(default_timeout_ms, self.stores)
        await fire_due(self.stores, self._opened.payloads, self.app.settings.task, limit, enqueue_guarded)
        await sweep_reviews(self.stores, self._opened.payloads)
        await expire_results(self.stores)

    async def finish(self, within: float | timedelta = timedelta(days=30)) -> int:
        """Drain and move the clock to whatever is due next, retries above all, until nothing is. Answers the runs."""
        end = self.clock.now() + _milliseconds(within)
        runs = await self.drain()
        while (due := await self.stores.sweeps.next_due()) is not None and due <= end:
            await self.advance(max(due - self.clock.now(), 0) / 1000)
            runs += await self.drain()
        return runs


class _TestWorker:
    """A worker made of the parts of the real one, which stops when there is nothing left to claim."""

    def __init__(self, app: Ade, opened: OpenStore, capabilities: frozenset[str]) -> None:
        self._app = app
        self._opened = opened
        self._stores = opened.stores
        self._options = options = WorkerOptions(capabilities=tuple(capabilities))
        self._backend = backend = StoreBackend(
            Setup(
                stores=opened.stores,
                registry=app.registry,
                options=options,
                payloads=opened.payloads,
                settings=app.settings,
                worker_id=_WORKER,
                hostname="localhost",
                started_at=opened.stores.clock.now(),
                randomness=lambda: 0.5,
            )
        )
        self._timer = SharedTimer(asyncio.get_running_loop())
        trigger = ClaimTrigger(backend.state, self._timer, options.concurrency)
        self._runs = RunExecutor(
            backend, app.registry, options, backend.state, trigger, self._timer, middleware=app.middlewares
        )

    async def work(self) -> int:
        await self._register()
        await self._backend.open()
        runs, was_empty = 0, False
        try:
            while True:
                seen = self._stores.wakeups.generation(WORK)
                tasks = await self._claim()
                self._runs.start(tasks)
                runs += len(tasks)
                if self._backend.state.held:
                    await self._until_emptied_or_hinted(seen)
                elif not tasks and not await self._settle():
                    if was_empty:  # twice: a server can release a limit shortly after the commit
                        return runs
                    was_empty = True
                    continue
                was_empty = False
        finally:
            await self._runs.stop_committing()
            await self._backend.outputs.flush()
            await self._backend.locks.close()
            await self._runs.close()
            await self._backend.close()
            self._timer.close()

    async def _settle(self) -> int:
        """Run the timed maintenance, and serve waiters of released locks."""
        await self._backend.locks.all_left()
        moved = await settle_due(self._stores) + await serve_locks(self._stores)
        return moved + await sweep_reviews(self._stores, self._opened.payloads)

    async def _register(self) -> None:
        """Register like any worker: with the tasks, their limits, and the schedules."""
        await self._backend.register()
        for schedule in self._app.schedules:
            await declare(self._stores, schedule, actor=self._opened.author)

    async def _claim(self) -> Sequence[Task]:
        request = ClaimRequest(
            worker_id=_WORKER,
            run_ids=fresh_ids(self._options.batch),
            names=self._app.registry.names(),
            capabilities=frozenset(self._options.capabilities),
            lease_ms=self._options.lease_ms,
        )
        return await self._backend.claim(request)

    async def _until_emptied_or_hinted(self, seen: int) -> None:
        """Wait for running tasks, or for new ones, which running tasks can enqueue and wait for."""
        emptied = asyncio.create_task(self._backend.state.emptied())
        hinted = asyncio.create_task(self._stores.wakeups.wait(WORK, seen, _LOOK_S))
        await asyncio.wait({emptied, hinted}, return_when=asyncio.FIRST_COMPLETED)
        for job in (emptied, hinted):
            job.cancel()


@asynccontextmanager
async def harness(
    app: Ade, url: str = "memory://", clock: TestClock | None = None, *, capabilities: Iterable[str] = ()
) -> AsyncIterator[TestKit]:
    """Give the app an empty store and a clock that stands still, for as long as the block lasts.

    Its worker has these capabilities, and those that the app's tasks need by their declaration.
    """
    moved = clock or TestClock()
    async with app.redirected(url, moved) as opened:
        yield TestKit(app, opened, moved, capabilities)
