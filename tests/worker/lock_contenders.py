"""Somebody beside the workers."""

from tests.domain import LockLimits, LockRequest, LockSpec, Stores, validate_request


class Outsider:
    """Somebody who holds a lock without any task."""

    def __init__(self, stores: Stores, *wanted: LockSpec, owner: str = "ada") -> None:
        self._stores = stores
        self.request = validate_request(id=f"of-{owner}", owner=owner, scope=owner, wanted=wanted)

    async def take(self) -> LockRequest | None:
        return await self._stores.locks.acquire(self.request, wait_ms=None, limits=LockLimits())

    async def leave(self) -> None:
        await self._stores.locks.release("default", [self.request.id])
