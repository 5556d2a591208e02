"""Somebody beside the workers."""

from ade.core.locks.asking import ask
from ade.core.locks.limits import LockLimits
from ade.core.locks.records import LockRequest
from ade.core.locks.wishes import Wish
from ade.ports import Stores


class Outsider:
    """Somebody who holds a lock without any task."""

    def __init__(self, stores: Stores, *wanted: Wish, owner: str = "ada") -> None:
        self._stores = stores
        self.request = ask(id=f"of-{owner}", owner=owner, scope=owner, wanted=wanted)

    async def take(self) -> LockRequest | None:
        return await self._stores.locks.acquire(self.request, wait_ms=None, limits=LockLimits())

    async def leave(self) -> None:
        await self._stores.locks.release("default", [self.request.id])
