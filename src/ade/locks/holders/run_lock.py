"""Locks as a handler has them: those of its task, and those it takes for a block with `ctx.lock`."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ade.errors import InvalidLock, LockLost
from ade.locks.model import DEFAULT_NAMESPACE, LockItem, covers
from ade.locks.modes import LockSpec
from ade.worker.messages import AcquiredLock, AcquireLock, ReleaseLock, Request, RunInfo

if TYPE_CHECKING:
    from ade.locks.held_lock import HeldLock, LockScope, Place

Held = Callable[[], "Mapping[str, HeldLock]"]


class ContextLocks:
    """What a run holds, as its context knows it. `held` is what is held in this very process: a child has nothing
    there, and is killed when a lock is lost."""

    def __init__(
        self, facts: RunInfo, ask: Callable[[Request], Awaitable[Any]], is_stopped: Callable[[], bool], held: Held
    ) -> None:
        self._scope_id = facts.scope
        self._ask = ask
        self._is_stopped = is_stopped
        self._held = held
        self._taken = [AcquiredLock(facts.scope, DEFAULT_NAMESPACE, facts.locks)] if facts.locks else []
        self._users = Counter({lock.id: 1 for lock in self._taken})  # blocks inside; the run itself is one

    def check(self) -> None:
        """Raise LockLost unless everything is surely held at this moment. Nobody is asked."""
        for held in list(self._held().values()):
            held.check()
        if self._is_stopped():
            raise LockLost("this run was told to end: what it holds may go to others at any moment")

    def token(self, resource: str) -> int:
        """The fencing token of something this run has locked."""
        tokens = {item.resource: item.token for lock in self._taken for item in lock.items}
        if resource not in tokens:
            raise InvalidLock(f"this run has no lock on {resource!r}; it has {', '.join(tokens) or 'none'}")
        self.check()
        return tokens[resource]

    def use(self, namespace: str, wishes: Sequence[LockSpec]) -> AcquiredLock | None:
        """A lock that has all of this already, kept until this use of it ends too; the exclusive one includes the
        share."""
        for lock in self._taken:
            if lock.namespace == namespace and covers(lock.items, wishes):
                self._users[lock.id] += 1
                return lock
        return None

    async def take(self, wanted: AcquireLock) -> AcquiredLock:
        lock: AcquiredLock = await self._ask(wanted)
        self._taken.append(lock)
        self._users[lock.id] = 1
        return lock

    async def leave(self, lock: AcquiredLock) -> None:
        """Let go of it, unless somebody else in this run is still in a block that relies on it."""
        self._users[lock.id] -= 1
        if not self._users[lock.id]:
            self._taken.remove(lock)
            await self._ask(ReleaseLock(lock.id))

    def scope(self, at: "Place | None") -> "LockScope":
        """Of this place: whatever it waits for, and in whichever way it asks, one waits."""
        from ade.locks.held_lock import LockScope, scope_at

        return scope_at(at) or LockScope(at, self._scope_id)

    def in_this_process(self, lock: AcquiredLock) -> "list[HeldLock]":
        held = self._held().get(lock.id)
        return [] if held is None else [held]


class RunLock:
    """`async with ctx.lock("repo:app") as lock`. In a block that has it already, taking it again is free."""

    def __init__(self, locks: ContextLocks, wanted: AcquireLock) -> None:
        self._locks = locks
        self._wanted = wanted
        self._lock: AcquiredLock | None = None
        self._entered: tuple[LockScope, Token[LockScope | None]] | None = None  # None: it was there already

    def token(self, resource: str | None = None) -> int:
        """The fencing token to give to the resource with every write. Raises LockLost."""
        items = self._items()
        tokens = {item.resource: item.token for item in items}
        name = items[0].resource if resource is None and len(items) == 1 else resource
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

    async def enter(self, at: "Place | None") -> None:
        from ade.locks.held_lock import current

        if self._lock is not None:
            raise InvalidLock("this lock is entered already; ctx.lock(...) makes another one")
        self._lock = self._locks.use(self._wanted.namespace, self._wanted.wishes)
        if self._lock is None:
            scope = self._locks.scope(at)
            self._lock = await self._locks.take(structs.replace(self._wanted, scope=scope.id))
            scope.held += self._locks.in_this_process(self._lock)
            self._entered = (scope, current.set(scope))

    async def leave(self) -> None:
        from ade.locks.held_lock import current

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
    """`with ctx.lock("repo:app") as lock`, for plain functions."""

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
