"""Giving back what a request may have brought, when nobody waits for it any more."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ade.core.errors import LockRateLimited, StoreError, TooManyLocks
from ade.core.locks.records import LockRequest
from ade.logs import Log
from ade.ports import LockStore

Answer = TypeVar("Answer")
log = Log("ade.locks")


class Leaving:
    """For one event loop."""

    def __init__(self, store: LockStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._jobs: set[asyncio.Task[None]] = set()

    async def or_leave(self, request: LockRequest, waiting: Awaitable[Answer]) -> Answer:
        """The answer; if it is an error, or nobody waits for it any more, what it may have brought is given back."""
        try:
            return await waiting
        except (TooManyLocks, LockRateLimited):  # it stands nowhere; whoever asks too often is not written for
            raise
        except BaseException:
            await self.leave(request)
            raise

    async def leave(self, request: LockRequest) -> None:
        """Let go of it, or leave the line."""
        try:
            await self._store.release(request.namespace, [request.id])
        except StoreError as error:  # its lease runs out by itself
            log.warning("lock.not_released", request_id=request.id, error=str(error))
        except asyncio.CancelledError:  # nobody waits for that any more, but others wait for the lock
            self.leave_later(request)
            raise

    def leave_later(self, request: LockRequest) -> None:
        job = self._loop.create_task(self.leave(request))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._jobs, return_exceptions=True)
