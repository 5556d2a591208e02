"""Both sides of `ctx.lock`: the lock a handler uses, possibly in a child process, and the worker that holds it."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Token
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import structs

from ade.errors import InvalidLock, LockLost, RunOver
from ade.locks.holder import LockScope, Place, current, scope_at
from ade.locks.model import DEFAULT_NAMESPACE, LockItem, LockSpec, covers, normal_name
from ade.locks.requests import LeaveLock, TakeLock, TakenLock
from ade.tasks.model import Task
from ade.tasks.outcomes import Deferred

if TYPE_CHECKING:
    from ade.locks.holder import HeldLock, LockHolder

Held = Callable[[], "Mapping[str, HeldLock]"]
Send = Callable[[TakeLock | LeaveLock], Awaitable[Any]]


class ContextLocks:
    """The locks of a run, as tracked by its context. `scope` and `items` are those of its task.

    `held` contains the locks held in this process. It is empty in a child process, which is killed when a lock is
    lost.
    """

    def __init__(
        self, scope: str, items: tuple[LockItem, ...], send: Send, is_stopped: Callable[[], bool], held: Held
    ) -> None:
        self._scope_id = scope
        self._send = send
        self._is_stopped = is_stopped
        self._held = held
        self._taken = [TakenLock(scope, DEFAULT_NAMESPACE, items)] if items else []
        self._users = Counter({lock.id: 1 for lock in self._taken})  # active blocks per lock; the run counts as one

    def check(self) -> None:
        """Raise LockLost unless all locks are certainly held now. Sends no request."""
        for held in list(self._held().values()):
            held.check()
        if self._is_stopped():
            raise LockLost("this run was told to end: its locks may go to others at any moment")

    def token(self, resource: str) -> int:
        """Return the fencing token of a resource this run has locked. Raises InvalidLock, LockLost."""
        tokens = {item.resource: item.token for lock in self._taken for item in lock.items}
        name = normal_name(resource)
        if name not in tokens:
            raise InvalidLock(f"this run has no lock on {resource!r}; it has {', '.join(tokens) or 'none'}")
        self.check()
        return tokens[name]

    def use(self, namespace: str, specs: Sequence[LockSpec]) -> TakenLock | None:
        """Return a held lock that covers these specs, and keep it until this use also ends."""
        for lock in self._taken:
            if lock.namespace == namespace and covers(lock.items, specs):
                self._users[lock.id] += 1
                return lock
        return None

    async def take(self, wanted: TakeLock) -> TakenLock:
        lock: TakenLock = await self._send(wanted)
        self._taken.append(lock)
        self._users[lock.id] = 1
        return lock

    async def leave(self, lock: TakenLock) -> None:
        """Release the lock unless another block of this run still uses it."""
        self._users[lock.id] -= 1
        if not self._users[lock.id]:
            self._taken.remove(lock)
            await self._send(LeaveLock(lock.id))

    def scope(self, at: Place | None) -> LockScope:
        """Return the scope of this asyncio task or thread, so that all its waits count as one."""
        return scope_at(at) or LockScope(at, self._scope_id)

    def in_this_process(self, lock: TakenLock) -> "list[HeldLock]":
        held = self._held().get(lock.id)
        return [] if held is None else [held]


class RunLock:
    """`async with ctx.lock("repo:app") as lock`. In a block that has it already, taking it again is free."""

    def __init__(self, locks: ContextLocks, wanted: TakeLock) -> None:
        self._locks = locks
        self._wanted = wanted
        self._lock: TakenLock | None = None
        self._entered: tuple[LockScope, Token[LockScope | None]] | None = None  # None: it was already held

    def token(self, resource: str | None = None) -> int:
        """The fencing token to give to the resource with every write. Raises LockLost."""
        items = self._items()
        tokens = {item.resource: item.token for item in items}
        name = items[0].resource if resource is None and len(items) == 1 else normal_name(resource or "")
        if name not in tokens:
            raise InvalidLock(f"name one of the resources that are locked: {', '.join(tokens)}")
        self._locks.check()
        return tokens[name]

    def check(self) -> None:
        """Raise LockLost unless it is surely held at this moment."""
        self._items()
        self._locks.check()

    async def __aenter__(self) -> "RunLock":
        await self.enter(asyncio.current_task())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    async def enter(self, at: Place | None) -> None:
        if self._lock is not None:
            raise InvalidLock("this lock is entered already; ctx.lock(...) makes another one")
        self._lock = self._locks.use(self._wanted.namespace, self._wanted.specs)
        if self._lock is None:
            scope = self._locks.scope(at)
            self._lock = await self._locks.take(structs.replace(self._wanted, scope=scope.id))
            scope.held += self._locks.in_this_process(self._lock)
            self._entered = (scope, current.set(scope))

    async def leave(self) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if self._entered is not None:
            (scope, token), self._entered = self._entered, None
            scope.held = [held for held in scope.held if held.id != lock.id]
            current.reset(token)
        await self._locks.leave(lock)

    def _items(self) -> tuple[LockItem, ...]:
        if self._lock is None:
            raise InvalidLock("a lock has a token only in the block that holds it")
        return self._lock.items


class SyncRunLock:
    """`with ctx.lock("repo:app") as lock`, for synchronous functions."""

    def __init__(self, lock: RunLock, run_through: Callable[[Any], Any]) -> None:
        self._lock = lock
        self._run_through = run_through

    def token(self, resource: str | None = None) -> int:
        """The fencing token to give to the resource with every write. Raises LockLost."""
        return self._lock.token(resource)

    def check(self) -> None:
        """Raise LockLost unless it is surely held at this moment."""
        self._lock.check()

    def __enter__(self) -> "SyncRunLock":
        self._run_through(self._lock.enter(threading.get_ident()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run_through(self._lock.leave())


class LockingRun(Protocol):
    """The part of a run that its locks need."""

    id: str
    task: Task
    locks: "dict[str, HeldLock]"  # by ID; an empty dict is replaced, not mutated
    owes_locks: bool  # its task's locks must be released: they are held, or may be

    @property
    def is_ending(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...


R = TypeVar("R", bound=LockingRun)


class RunLocks(Generic[R]):
    """The locks that runs acquire while they run. `on_lost` is called with a run that has lost a lock.

    The lock holder is created when the first lock is needed.
    """

    def __init__(self, open_holder: "Callable[[], LockHolder[Any]]", on_lost: Callable[[R], object]) -> None:
        self._open_holder = open_holder
        self._on_lost = on_lost
        self._holder: LockHolder[Any] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def holder(self) -> "LockHolder[Any]":
        if self._holder is None:
            self._holder = self._open_holder()
        return self._holder

    async def take(self, run: R) -> Deferred | None:
        """Acquire all locks of the run's task, or return how the task waits for them."""
        raise NotImplementedError

    async def take_more(self, run: R, wanted: TakeLock) -> TakenLock:
        """Acquire a lock for a running handler. Raises LockTimeout, DeadlockVictim, TooManyLocks, InvalidLock,
        RunOver.
        """
        _check_goes_on(run)
        task = run.task
        request = wanted.request(
            id=os.urandom(16).hex(),
            owner=f"task:{task.id}",
            priority=task.priority,
            purpose=task.name,
            task_id=task.id,
            account=task.author_id,
        )
        held = await self.holder.acquire(request, wait_ms=wanted.wait_ms, goes_on=lambda: not run.is_ending)
        try:
            _check_goes_on(run)  # a thread keeps waiting after its run was abandoned, and would never release it
        except RunOver:
            await self.holder.release(held)
            raise
        self._hold(run, held)
        return TakenLock(held.id, held.grant.namespace, held.grant.items)

    async def leave(self, run: R, lock_id: str) -> None:
        """Release a lock the run has acquired."""
        held = run.locks.pop(lock_id, None)
        if held is not None:
            await self.holder.release(held)

    def end(self, run: R, then: Callable[[], None]) -> None:
        """Release everything the finished run holds, then call `then`."""
        own, run.locks = list(run.locks.values()), {}
        for held in own:
            self.holder.stop_renewing(held)
        job = asyncio.get_running_loop().create_task(self._release(run, own))
        self._ending.add(job)
        job.add_done_callback(self._ending.discard)
        job.add_done_callback(lambda _: then())  # also if it is cancelled before its first step

    async def all_left(self) -> None:
        """Wait until all locks of finished runs are released."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def close(self) -> None:
        await self.all_left()
        if self._holder is not None:
            await self._holder.close()

    def _hold(self, run: R, held: "HeldLock") -> None:
        if not run.locks:
            run.locks = {}
        run.locks[held.id] = held
        held.when_lost(partial(self._on_lost, run))

    async def _release(self, run: R, own: "Sequence[HeldLock]") -> None:
        for held in own:
            await self.holder.release(held)


def _check_goes_on(run: LockingRun) -> None:
    if run.is_over:
        raise RunOver(f"run {run.id} of task {run.task.id} is over: it gets no more locks")
