"""The locks of this worker's runs: those that their tasks name, and those they ask for while they run."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ade.errors import AdeError, RunOver, StoreError
from ade.locks.requests import RECHECK_MS, STANDS_NOWHERE_MS, request_id, request_of, validate_request
from ade.logs import Log
from ade.stores.ports import LOCK, Stores
from ade.tasks.outcomes import Deferred
from ade.tasks.service import requeue_granted
from ade.worker.messages import AcquiredLock, AcquireLock
from ade.worker.options import WorkerOptions
from ade.worker.run import Run, StopReason

if TYPE_CHECKING:
    from ade.locks.client import LockClient
    from ade.locks.held_lock import HeldLock, Place

_BREATH_S = 0.005  # between two looks for tasks that were let in, however often there is news
log = Log("ade.worker")


class RunLocks:
    def __init__(self, stores: Stores, options: WorkerOptions) -> None:
        self._stores = stores
        self._options = options
        self._keeper: LockClient | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._recalling: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._unfollow: Callable[[], None] | None = None
        self.on_lost: Callable[[Run], object] = lambda run: run.end(StopReason.LOCK_LOST)

    async def take(self, run: Run) -> Deferred | None:
        """Everything the task of this run names, or how it waits for that."""
        resources = tuple(wish.resource for wish in run.task.locks)
        try:
            held = await self._keep().take(request_of(run.task, ttl_ms=self._options.lease_ms))
        except AdeError as error:  # too many wait already, or the store is away
            log.warning("locks.not_asked_for", task_id=run.task.id, resources=resources, error=str(error))
            return Deferred(resources, STANDS_NOWHERE_MS)
        if held is None:
            self._attend()
            return Deferred(resources, RECHECK_MS)
        self._hold(run, held)
        enter_scope(run, asyncio.current_task())
        return None

    async def take_more(self, run: Run, wanted: AcquireLock) -> AcquiredLock:
        """For a run that asks while it runs. Raises LockTimeout, DeadlockVictim, TooManyLocks, InvalidLock, RunOver."""
        _check_goes_on(run)
        task = run.task
        request = validate_request(
            id=os.urandom(16).hex(),
            owner=f"task:{task.id}",
            scope=wanted.scope,
            wanted=wanted.wishes,
            namespace=wanted.namespace,
            priority=task.priority,
            purpose=wanted.purpose or task.name,
            task_id=task.id,
            ttl_ms=wanted.ttl_ms,
        )
        held = await self._keep().acquire(request, wait_ms=wanted.wait_ms)
        try:
            _check_goes_on(run)  # a thread waits on when its run was let go of; nobody would release that
        except RunOver:
            await self._keep().release(held)
            raise
        self._hold(run, held)
        return AcquiredLock(held.id, wanted.namespace, held.grant.items)

    async def leave(self, run: Run, lock_id: str) -> None:
        """The run lets go of what it asked for."""
        held = run.locks.pop(lock_id, None)
        if held is not None:
            await self._keep().release(held)

    def end(self, run: Run, then: Callable[[], None]) -> None:
        """The run is over: what it has goes to those who wait. What its task names is let go of even if it is not
        known to be held: the answer may have been lost."""
        job = asyncio.get_running_loop().create_task(self._end(run, then))
        self._leaving.add(job)
        job.add_done_callback(self._leaving.discard)

    async def all_left(self) -> None:
        """What runs that are over had has gone to others."""
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def renew_late(self) -> None:
        """By the lease thread: a blocked event loop loses no lock."""
        if self._keeper is None:
            return
        try:
            self._keeper.renew_late()
        except StoreError as error:
            log.warning("locks.not_renewed", error=str(error))

    async def close(self) -> None:
        if self._unfollow is not None:
            self._unfollow()
        if self._recalling is not None:
            self._recalling.cancel()
            await asyncio.gather(self._recalling, return_exceptions=True)
        await self.all_left()
        if self._keeper is not None:
            await self._keeper.close()

    def _keep(self) -> "LockClient":
        if self._keeper is None:
            from ade.locks.client import LockClient

            options = self._options
            self._keeper = LockClient(self._stores, limits=options.lock_limits, finds_rings=options.deadlock_detection)
        return self._keeper

    def _hold(self, run: Run, held: "HeldLock") -> None:
        if not run.locks:
            run.locks = {}
        run.locks[held.id] = held
        held.when_lost(partial(self.on_lost, run))

    async def _end(self, run: Run, then: Callable[[], None]) -> None:
        keeper = self._keep()
        own, run.locks = list(run.locks.values()), {}
        owes, run.owes_locks = run.owes_locks, False
        try:
            for held in own:
                await keeper.release(held)
            if owes and all(held.id != request_id(run.task) for held in own):
                await keeper.leave(request_of(run.task))
        finally:
            then()

    def _attend(self) -> None:
        """From now on some task waits: hear of locks that become free."""
        if self._unfollow is None:
            self._unfollow = self._stores.hints.follow(LOCK, self._news.set)
            self._recalling = asyncio.get_running_loop().create_task(self._recall(), name="ade-recalls")
        self._news.set()  # it may have been let in before we heard anything

    async def _recall(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await requeue_granted(self._stores)
            except AdeError as error:  # the sweep looks too
                log.warning("tasks.not_recalled", error=str(error))
            await asyncio.sleep(_BREATH_S)


def _check_goes_on(run: Run) -> None:
    if run.is_over:
        raise RunOver(f"run {run.id} of task {run.task.id} is over: it gets no more locks")


def enter_scope(run: Run, at: "Place | None") -> None:
    """From here on, in this context: what the handler locks in any other way is held and waited for by the run too."""
    from ade.locks.held_lock import LockScope, current

    scope = LockScope(at, request_id(run.task))
    scope.held += run.locks.values()
    current.set(scope)
