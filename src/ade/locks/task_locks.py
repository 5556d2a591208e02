"""Locks that tasks declare: acquired before the handler starts, by a worker on the store or behind HTTP."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from ade.errors import AdeError, LockNotPermitted, StoreError
from ade.locks.holder import HeldLock, LockHolder, LockScope, Place, current
from ade.locks.model import LockItem, LockLimits, LockState
from ade.locks.requests import RECHECK_MS, STANDS_NOWHERE_MS, request_id, request_of
from ade.locks.run_locks import LockingRun, R, RunLocks
from ade.logs import Log
from ade.stores.ports import LOCK, Stores
from ade.tasks.outcomes import Deferred
from ade.tasks.service import requeue_granted

if TYPE_CHECKING:
    from ade.locks.client import StoreLockClient
    from ade.locks.http_client import HttpLockClient


_BREATH_S = 0.005  # between two searches for granted tasks, however many notifications arrive
log = Log("ade.worker")


class LockOptions(Protocol):
    """Worker options that concern the locks of its runs."""

    @property
    def lease_ms(self) -> int: ...

    @property
    def lock_limits(self) -> LockLimits: ...

    @property
    def deadlock_detection(self) -> bool: ...


class StoreRunLocks(RunLocks[R]):
    """Run locks of a worker with direct store access. A run acquires its task's locks before the handler starts."""

    def __init__(self, stores: Stores, options: LockOptions, on_lost: Callable[[R], object]) -> None:
        super().__init__(self._open, on_lost)
        self._stores = stores
        self._options = options
        self._recalling: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._unfollow: Callable[[], None] | None = None

    def _open(self) -> "LockHolder[StoreLockClient]":
        from ade.locks.client import StoreLockClient

        options = self._options
        client = StoreLockClient(self._stores, limits=options.lock_limits, finds_rings=options.deadlock_detection)
        return LockHolder(client)

    async def take(self, run: R) -> Deferred | None:
        resources = tuple(spec.resource for spec in run.task.locks)
        try:
            held = await self.holder.take(request_of(run.task, ttl_ms=self._options.lease_ms))
        except LockNotPermitted:  # it would be the same the next time
            raise
        except AdeError as error:  # too many wait already, or the store is away
            log.warning("locks.not_asked_for", task_id=run.task.id, resources=resources, error=str(error))
            return Deferred(resources, STANDS_NOWHERE_MS)
        if held is None:
            self._attend()
            return Deferred(resources, RECHECK_MS)
        self._hold(run, held)
        enter_scope(run, asyncio.current_task())
        return None

    def renew_late(self) -> None:
        """Renew overdue locks from the lease thread, so that a blocked event loop does not lose them."""
        if self._holder is None:
            return
        try:
            self._holder.renew_late()
        except StoreError as error:
            log.warning("locks.not_renewed", error=str(error))

    async def close(self) -> None:
        if self._unfollow is not None:
            self._unfollow()
        if self._recalling is not None:
            self._recalling.cancel()
            await asyncio.gather(self._recalling, return_exceptions=True)
        await super().close()

    async def _release(self, run: R, own: "Sequence[HeldLock]") -> None:
        """Also release the task's locks if they are not known to be held: the response may have been lost."""
        owes, run.owes_locks = run.owes_locks, False
        await super()._release(run, own)
        if owes and all(held.id != request_id(run.task) for held in own):
            await self.holder.leave(request_of(run.task))

    def _attend(self) -> None:
        """Subscribe to lock notifications, because a task now waits."""
        if self._unfollow is None:
            self._unfollow = self._stores.wakeups.follow(LOCK, self._news.set)
            self._recalling = asyncio.get_running_loop().create_task(self._recall(), name="ade-recalls")
        self._news.set()  # it may have been granted before the subscription

    async def _recall(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await requeue_granted(self._stores)
            except AdeError as error:  # the sweep also requeues them
                log.warning("tasks.not_recalled", error=str(error))
            await asyncio.sleep(_BREATH_S)


def enter_scope(run: LockingRun, at: Place | None) -> None:
    """Set the lock scope of the current context to the run: any lock the handler acquires belongs to the run."""
    scope = LockScope(at, request_id(run.task))
    scope.held += run.locks.values()
    current.set(scope)


# Workers behind HTTP: the locks of a task are granted with the claim, and released with the report of the run.


class HttpRunLocks(RunLocks[R]):
    """Run locks of a worker behind HTTP. Heartbeats renew the locks of tasks, and the server releases them."""

    def __init__(self, client: "HttpLockClient", lease_ms: int, on_lost: Callable[[R], object]) -> None:
        super().__init__(lambda: LockHolder(client), on_lost)
        self._client = client
        self._lease_ms = lease_ms
        self._loop = asyncio.get_running_loop()
        self._with_tasks: dict[str, tuple[Sequence[LockItem], float]] = {}  # by run, before it starts
        self._of_tasks: dict[str, tuple[R, HeldLock]] = {}  # by run
        self._taken = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    def registered(self, account: str) -> None:
        """Set the account of the worker, which also owns its lock requests."""
        self._client.account = account

    def expect(self, run_id: str, items: Sequence[LockItem], asked_at: float) -> None:
        """Register the locks of a run that is about to start, granted by a call that began at `asked_at`."""
        self._with_tasks[run_id] = items, asked_at

    async def take(self, run: R) -> Deferred | None:
        """Hold the locks that came with the claim: no task is claimed without its locks."""
        items, asked_at = self._with_tasks.pop(run.id, ((), self._loop.time()))
        request = request_of(run.task, ttl_ms=self._lease_ms)
        grant = structs.replace(request, items=tuple(items), state=LockState.GRANTED)
        held = HeldLock(grant, asked_at, self._loop, is_told=False)
        self._of_tasks[run.id] = run, held
        run.locks, run.owes_locks = {held.id: held}, False
        self._taken.set()
        if self._watching is None:
            self._watching = self._loop.create_task(self._client.watch_runs(self._runs, self._taken, self._lost))
        enter_scope(run, asyncio.current_task())
        return None

    def _runs(self) -> dict[str, str]:
        return {run_id: run.task.id for run_id, (run, _) in self._of_tasks.items()}

    def _lost(self, run_ids: Sequence[str]) -> None:
        """End the runs whose locks were released by force."""
        for run_id in run_ids:
            run, held = self._of_tasks.pop(run_id, (None, None))
            if run is not None and held is not None:
                held.lose("it was released by force")
                self._on_lost(run)

    def beaten(self, asked_at: float) -> None:
        """Extend the tasks' locks after a heartbeat that began at `asked_at`; called by the lease thread."""
        for _, held in list(self._of_tasks.values()):
            held.extend_from_thread(held.grant, asked_at)

    def end(self, run: R, then: Callable[[], None]) -> None:
        """Release the locks acquired during the run. The server releases those of the task."""
        self._with_tasks.pop(run.id, None)
        _, of_task = self._of_tasks.pop(run.id, (None, None))
        if of_task is not None:
            run.locks.pop(of_task.id, None)
        super().end(run, then)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await super().close()
