"""Locks on what agents share: `async with app.lock("repo:app")`, or a plain `with` where no event loop runs."""

import asyncio
import os
import socket
import threading
from contextvars import ContextVar, Token
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING

from ade.app.call import Call
from ade.core.errors import InvalidLock
from ade.core.locks.asking import ask
from ade.core.locks.records import LockMode
from ade.governance.locks.held import HeldLock
from ade.governance.locks.keeper import LockKeeper
from ade.governance.locks.wishes import Wish, wishes_of

if TYPE_CHECKING:
    from ade.app.ade import Ade

Place = asyncio.Task[object] | int  # what runs in one go: a task of an event loop, or a thread


class _Scope:
    """What one place holds, so that it may ask for it again."""

    def __init__(self, at: Place | None) -> None:
        self.id = os.urandom(16).hex()
        self.at = at
        self.held: list[LockHandle] = []

    def covers(self, namespace: str, wishes: list[Wish]) -> "LockHandle | None":
        """A lock held here that has all of this: the exclusive one includes the share."""
        for handle in self.held:
            grant = handle._held.grant
            modes = {item.resource: item.mode for item in grant.items}
            enough = all(modes.get(one.resource) in (one.mode, LockMode.EXCLUSIVE) for one in wishes)
            if grant.namespace == namespace and enough:
                return handle
        return None


_scope: ContextVar[_Scope | None] = ContextVar("ade_lock_scope", default=None)


class LockHandle:
    """A lock that is held. Give its token to the resource with every write."""

    def __init__(self, app: "Ade", keeper: LockKeeper, held: HeldLock) -> None:
        self._app = app
        self._keeper = keeper
        self._held = held
        self.id = held.id
        self.resources = held.grant.resources

    @property
    def is_lost(self) -> bool:
        """Whether it cannot be relied on any more. Nobody is asked: its own clock knows."""
        return self._held.is_lost

    def check(self) -> None:
        """Raise LockLost unless the lock is surely held at this moment."""
        self._held.check()

    def token(self, resource: str | None = None) -> int:
        """The fencing token; needs the name only where several are locked. Raises LockLost."""
        return self._held.token(self._named(resource))

    def mode(self, resource: str | None = None) -> LockMode:
        """Shared or exclusive."""
        mode = self._held.mode(self._named(resource))
        assert mode is not None
        return mode

    def upgrade(self, resource: str | None = None, *, wait: float | None = None) -> Call[None]:
        """From reading to writing, before everybody else who waits; under a new token."""
        upgrade_id = os.urandom(16).hex()
        named = self._named(resource)
        return Call(
            self._keeper.upgrade(self._held, named, upgrade_id=upgrade_id, wait_ms=_milliseconds(wait)),
            self._app.portal,
        )

    def downgrade(self, resource: str | None = None) -> Call[None]:
        """From writing to reading: other readers may come in."""
        return Call(self._keeper.downgrade(self._held, self._named(resource)), self._app.portal)

    def _named(self, resource: str | None) -> str:
        if resource is None and len(self.resources) == 1:
            return self.resources[0]
        if resource not in self.resources:
            raise InvalidLock(f"name one of the resources that are locked: {', '.join(self.resources)}")
        return resource


class Lock:
    """Taken by entering it, let go by leaving it. In a place that has it already, entering it again is free."""

    def __init__(
        self,
        app: "Ade",
        wanted: tuple[str | Wish, ...],
        *,
        owner: str | None,
        namespace: str,
        priority: int,
        ttl: float,
        wait: float | None,
        purpose: str | None,
        task_id: str | None = None,
    ) -> None:
        self._app = app
        self._wishes = wishes_of(wanted)
        self._namespace = namespace
        self._wait_ms = _milliseconds(wait)
        self._entered: list[_Entry] = []
        self._request = {
            "owner": owner or _this_program(),
            "wanted": self._wishes,
            "namespace": namespace,
            "priority": priority,
            "ttl_ms": round(ttl * 1000),
            "purpose": purpose,
            "task_id": task_id,
        }
        ask(id="x", scope="x", **self._request)  # type: ignore[arg-type]  # what is wrong is told where it was written

    async def __aenter__(self) -> LockHandle:
        task = asyncio.current_task()
        entry = _Entry(task)
        entry.handle = await self._take(entry.scope) if (known := self._known(entry)) is None else known
        if known is None:
            entry.watch()
        self._entered.append(entry)
        return entry.handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._entered.pop()
        if entry.leave():
            await entry.handle._keeper.release(entry.handle._held)
        if entry.was_interrupted(kind):
            entry.handle.check()

    def __enter__(self) -> LockHandle:
        entry = _Entry(threading.get_ident())
        known = self._known(entry)
        entry.handle = self._app.portal.run(self._take(entry.scope)) if known is None else known
        entry.own(known is None)
        self._entered.append(entry)
        return entry.handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._entered.pop()
        if entry.leave():
            self._app.portal.run(entry.handle._keeper.release(entry.handle._held))

    def _known(self, entry: "_Entry") -> LockHandle | None:
        return entry.scope.covers(self._namespace, self._wishes)

    async def _take(self, scope: _Scope) -> LockHandle:
        opened = await self._app.open()
        keeper = opened.side.locks
        request = ask(id=os.urandom(16).hex(), scope=scope.id, **self._request)  # type: ignore[arg-type]  # checked
        return LockHandle(self._app, keeper, await keeper.acquire(request, wait_ms=self._wait_ms))


class _Entry:
    """One time that a lock was entered."""

    handle: LockHandle

    def __init__(self, at: Place | None) -> None:
        known = _scope.get()
        self._token: Token[_Scope | None] | None = None
        if known is None or known.at != at:
            known = _Scope(at)
            self._token = _scope.set(known)
        self.scope = known
        self._owns = False
        self._task = at if isinstance(at, asyncio.Task) else None
        self._interrupted = False
        self._cancelling = 0 if self._task is None else self._task.cancelling()

    def own(self, owns: bool) -> None:
        self._owns = owns
        if owns:
            self.scope.held.append(self.handle)

    def watch(self) -> None:
        """The block ends when the lock is lost: what it does is not protected any more."""
        self.own(True)
        self.handle._held.when_lost(self._interrupt)

    def leave(self) -> bool:
        """Whether the lock goes with it."""
        if self._owns:
            self.scope.held.remove(self.handle)
        if self._token is not None:
            _scope.reset(self._token)
        owned, self._owns = self._owns, False
        return owned

    def was_interrupted(self, kind: type[BaseException] | None) -> bool:
        """Whether the block was cancelled because of the lock, and for nothing else."""
        if not self._interrupted or self._task is None:
            return False
        return self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError

    def _interrupt(self) -> None:
        if self._owns and self._task is not None:
            self._interrupted = True
            self._task.cancel()


@cache
def _this_program() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def _milliseconds(seconds: float | None) -> int | None:
    if seconds is not None and not 0 <= seconds < 1e9:
        raise InvalidLock(f"wait is the number of seconds to wait, or None for ever; not {seconds!r}")
    return None if seconds is None else round(seconds * 1000)
