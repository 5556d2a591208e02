"""One pump for a conversation among all processes: it holds a lock, and nobody waits for that."""

import hashlib
import os

from ade.errors import LockTimeout
from ade.locks.client import LockClient
from ade.locks.held_lock import HeldLock
from ade.locks.model import LockLimits
from ade.locks.modes import write
from ade.locks.requests import LEAST_TTL_MS, validate_request
from ade.settings.runtime import RuntimeSettingsCache
from ade.stores.ports import Stores

NAMESPACE = "ade.conversations"  # of its own, so that no lock of a user is in the way
_LONGEST_NAME = 400  # bytes
_NO_LIMIT = 1_000_000_000


class ConversationLocks:
    """The conversations that this process has. Belongs to one event loop."""

    def __init__(self, stores: Stores, *, holder: str, lease_ms: int) -> None:
        limits = LockLimits(requests_per_owner=_NO_LIMIT, waiters_per_resource=_NO_LIMIT)
        self._keeper = LockClient(stores, limits=limits, finds_rings=False)
        self._runtime = RuntimeSettingsCache(stores)
        self._holder = holder
        self._lease_ms = lease_ms

    async def claim(self, inbox_id: str) -> HeldLock | None:
        """None when another process has it."""
        longest_ms = round((await self._runtime.current()).get("lock.max_ttl_s") * 1000)
        grant_id = os.urandom(16).hex()
        request = validate_request(
            id=grant_id,
            owner=self._holder,
            scope=grant_id,
            wanted=[write(resource_of(inbox_id))],
            namespace=NAMESPACE,
            purpose="pump",
            ttl_ms=max(LEAST_TTL_MS, min(self._lease_ms, longest_ms)),
        )
        try:
            return await self._keeper.acquire(request, wait_ms=0)
        except LockTimeout:
            return None

    async def release(self, held: HeldLock) -> None:
        await self._keeper.release(held)

    async def close(self) -> None:
        await self._keeper.close()


def resource_of(inbox_id: str) -> str:
    """The name of the lock; an id of many bytes is named by its digest, for names of locks are shorter."""
    name = f"conversation:{inbox_id}"
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return f"conversation:sha256:{hashlib.sha256(inbox_id.encode()).hexdigest()}"
