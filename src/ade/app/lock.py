"""Locks on shared resources: `async with app.lock("repo:app")`, or a plain `with` without an event loop."""

import asyncio
import os
import socket
import threading
import time
from contextvars import Token
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING

from msgspec import structs

from ade.common.calls import Call, is_loop_running
from ade.errors import InvalidLock, WouldBlock
from ade.locks.holder import HeldLock, Interruption, LockScope, Place, current, scope_at
from ade.locks.model import LockMode, LockRequest, LockSpec, PriorityName, lock_specs_of, normal_name
from ade.locks.requests import ttl_ms_of, validate_request, wait_ms_of
from ade.worker.instrumentation import current_run

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.locks.client import StoreLockClient
    from ade.locks.holder import LockHolder


class LockHandle:
    """A lock that is held. Give its token to the resource with every write."""

    def __init__(self, app: "Ade", holder: "LockHolder[StoreLockClient]", held: HeldLock) -> None:
        self._app = app
        self._holder = holder
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
            self._holder.upgrade(self._held, named, upgrade_id=upgrade_id, wait_ms=wait_ms_of(wait)),
            self._app.portal,
        )

    def downgrade(self, resource: str | None = None) -> Call[None]:
        """From writing to reading: other readers may come in."""
        return Call(self._holder.downgrade(self._held, self._named(resource)), self._app.portal)

    def _named(self, resource: str | None) -> str:
        if resource is None and len(self.resources) == 1:
            return self.resources[0]
        name = normal_name(resource or "")
        if name not in self.resources:
            raise InvalidLock(f"name one of the resources that are locked: {', '.join(self.resources)}")
        return name


class Lock:
    """A lock that is acquired on entry and released on exit. Reentrant: entering again in the same scope is free."""

    def __init__(
        self,
        app: "Ade",
        wanted: tuple[str | LockSpec, ...],
        *,
        owner: str | None,
        namespace: str,
        priority: int | PriorityName,
        ttl: float | None,
        wait: float | None,
        purpose: str | None,
        task_id: str | None = None,
    ) -> None:
        self._app = app
        self._specs = lock_specs_of(wanted)
        self._namespace = namespace
        self._wait_ms = wait_ms_of(wait)
        self._entered: list[_LockEntry] = []
        # Each entry replaces the ID and the scope. Validating here reports errors where the lock is declared.
        self._request = validate_request(
            id="x",
            scope="x",
            owner=_this_program() if owner is None else owner,
            wanted=self._specs,
            namespace=namespace,
            priority=priority,
            ttl_ms=ttl_ms_of(ttl),
            purpose=purpose,
            task_id=task_id,
        )

    def on_behalf_of(self, account: str) -> "Lock":
        """Request the lock for this account, which the rulebook must allow to lock these resources."""
        self._request = structs.replace(self._request, account=account)
        return self

    async def __aenter__(self) -> LockHandle:
        task = asyncio.current_task()
        entry = _LockEntry(task)
        known = self._known(entry)
        entry.handle = await self._take(entry.scope, known)
        if known is None:
            entry.watch()
        self._entered.append(entry)
        return entry.handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._entered.pop()
        if entry.leave():
            await entry.handle._holder.release(entry.handle._held)
        if entry.interruption.was_cause(kind):
            entry.handle.check()

    def __enter__(self) -> LockHandle:
        entry = _LockEntry(threading.get_ident())
        known = self._known(entry)
        entry.handle = self._take_blocking(entry.scope, known)
        entry.own(known is None)
        self._entered.append(entry)
        return entry.handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._entered.pop()
        if entry.leave():
            entry.handle._holder.release_blocking(entry.handle._held)

    def _known(self, entry: "_LockEntry") -> HeldLock | None:
        return entry.scope.covering(self._namespace, self._specs)

    async def _take(self, scope: LockScope, known: HeldLock | None) -> LockHandle:
        opened = self._app.opener.opened or await self._app.open()
        holder = opened.side.locks
        if known is not None:
            return LockHandle(self._app, holder, known)
        held = await holder.acquire(self._new_request(scope), wait_ms=self._wait_ms)
        return LockHandle(self._app, holder, held)

    def _take_blocking(self, scope: LockScope, known: HeldLock | None) -> LockHandle:
        """Acquire the lock in this thread. Only waiting in the wait queue uses the app's event loop."""
        if is_loop_running():
            raise WouldBlock
        holder = _holder_of_threads(self._app)
        if known is not None:
            return LockHandle(self._app, holder, known)
        if not holder.client.is_up_to_date:
            self._app.portal.run(holder.client.refresh())
        request, asked_at = self._new_request(scope), time.monotonic()
        if holder.client.is_governed:
            self._app.portal.run(holder.client.permit(request))
        held = holder.acquire_blocking(request, wait_ms=self._wait_ms)
        if isinstance(held, LockRequest):
            held = self._app.portal.run(holder.wait_in_line(held, asked_at, self._wait_ms))
        return LockHandle(self._app, holder, held)

    def _new_request(self, scope: LockScope) -> LockRequest:
        account = self._request.account or account_here(self._app)
        return structs.replace(self._request, id=os.urandom(16).hex(), scope=scope.id, account=account)


def account_here(app: "Ade") -> str | None:
    """Return on whose behalf this code requests locks: the author of the task that it runs, else that of the app."""
    run = current_run.get()
    if run is not None:
        return run.author
    return getattr(app, "author", None) or os.environ.get("ADE_USER") or None


def _holder_of_threads(app: "Ade") -> "LockHolder[StoreLockClient]":
    """Return the lock holder for threads without an event loop, which runs on the event loop of the app."""
    opened = app.opener.opened
    if opened is not None and opened.blocking_locks is not None:
        return opened.blocking_locks
    return app.portal.run(_open_for_threads(app))


async def _open_for_threads(app: "Ade") -> "LockHolder[StoreLockClient]":
    opened = await app.open()
    opened.blocking_locks = opened.side.locks
    return opened.blocking_locks


class _LockEntry:
    """One entry into a lock."""

    handle: LockHandle

    def __init__(self, at: Place | None) -> None:
        known = scope_at(at)
        self._token: Token[LockScope | None] | None = None
        if known is None:
            run = current_run.get()  # in a handler, the lock belongs to the run, so that deadlocks with it are found
            known = LockScope(at, os.urandom(16).hex() if run is None else run.scope)
            self._token = current.set(known)
        self.scope = known
        self._owns = False
        self.interruption = Interruption(at if isinstance(at, asyncio.Task) else None)

    def own(self, owns: bool) -> None:
        self._owns = owns
        if owns:
            self.scope.held.append(self.handle._held)

    def watch(self) -> None:
        """Cancel the block when the lock is lost, because its work is no longer protected."""
        self.own(True)
        self.handle._held.when_lost(self.interruption)

    def leave(self) -> bool:
        """Leave the scope. Returns whether the lock must be released."""
        self.interruption.leave()
        if self._owns:
            self.scope.held.remove(self.handle._held)
        if self._token is not None:
            current.reset(self._token)
        owned, self._owns = self._owns, False
        return owned


@cache
def _this_program() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"
