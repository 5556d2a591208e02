"""Keeps what one event loop holds: every lease is set anew three times in its length."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from ade.core.errors import StoreError
from ade.core.locks.records import LockRequest
from ade.governance.locks.held import HeldLock
from ade.logs import Log
from ade.ports import LockStore

_IN_ONE_LEASE = 3
log = Log("ade.locks")


class Renewals:
    def __init__(self, store: LockStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._job: asyncio.Task[None] | None = None
        self._added = asyncio.Event()
        self.held: dict[str, HeldLock] = {}

    def add(self, held: HeldLock) -> None:
        self.held[held.id] = held
        self._added.set()
        if self._job is None or self._job.done():
            self._job = self._loop.create_task(self._work(), name="ade-lock-renewals")

    def remove(self, held: HeldLock) -> None:
        self.held.pop(held.id, None)
        held.forget()

    async def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def _work(self) -> None:
        renewed_at = self._loop.time()
        while self.held:
            self._added.clear()
            shortest = min(held.grant.ttl_ms for held in self.held.values()) / 1000
            pause = renewed_at + shortest / _IN_ONE_LEASE - self._loop.time()
            if pause > 0:
                await _either(self._added, pause)
                continue
            renewed_at = self._loop.time()
            try:
                await self._renew()
            except StoreError as error:  # every lock has an alarm of its own
                log.warning("lock.not_renewed", locks=len(self.held), error=str(error))

    async def _renew(self) -> None:
        for namespace, ids in by_namespace(held.grant for held in self.held.values()).items():
            asked_at = self._loop.time()
            for request_id, grant in zip(ids, await self._store.renew(namespace, ids), strict=True):
                held = self.held.get(request_id)
                if held is not None and grant is not None:
                    held.extend(grant, asked_at)
                elif held is not None:
                    self.remove(held)
                    held.lose("it ran out or was taken away")


def by_namespace(requests: Iterable[LockRequest]) -> dict[str, list[str]]:
    """The ids of the requests, for calls that are about one namespace."""
    ids: dict[str, list[str]] = defaultdict(list)
    for request in requests:
        ids[request.namespace].append(request.id)
    return ids


async def _either(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
