"""Locks of task functions that are called directly."""

import os
from typing import TYPE_CHECKING

from ade.locks.requests import validate_request
from ade.worker.messages import AcquiredLock, AcquireLock

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.locks.held_lock import HeldLock


class StoreInlineLocks:
    """On the caller's event loop, or from a thread without one (`blocking`)."""

    def __init__(self, app: "Ade", owner: str, *, blocking: bool) -> None:
        self._app = app
        self._owner = owner
        self._blocking = blocking
        self.scope = os.urandom(16).hex()
        self.held: dict[str, HeldLock] = {}

    async def take(self, wanted: AcquireLock) -> AcquiredLock:
        held = self._app.portal.run(self._take(wanted)) if self._blocking else await self._take(wanted)
        self.held[held.id] = held
        return AcquiredLock(held.id, wanted.namespace, held.grant.items)

    async def leave(self, lock_id: str) -> None:
        held = self.held.pop(lock_id)
        if self._blocking:
            self._app.portal.run(self._release(held))
        else:
            await self._release(held)

    async def _take(self, wanted: AcquireLock) -> "HeldLock":
        request = validate_request(
            id=os.urandom(16).hex(),
            owner=self._owner,
            scope=wanted.scope,
            wanted=wanted.wishes,
            namespace=wanted.namespace,
            purpose=wanted.purpose,
            ttl_ms=wanted.ttl_ms,
        )
        opened = await self._app.open()
        return await opened.side.locks.acquire(request, wait_ms=wanted.wait_ms)

    async def _release(self, held: "HeldLock") -> None:
        opened = await self._app.open()
        await opened.side.locks.release(held)
