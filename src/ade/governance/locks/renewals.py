"""Keeps what one event loop holds: every lease is set anew three times in its length, and at every heartbeat."""

import asyncio

from ade.core.errors import StoreError
from ade.core.locks.records import by_namespace
from ade.governance.locks.held import HeldLock
from ade.governance.runtime import Runtime, RuntimeCache
from ade.logs import Log
from ade.ports import LockStore

_IN_ONE_LEASE = 3
log = Log("ade.locks")


class Renewals:
    def __init__(self, store: LockStore, runtime: RuntimeCache) -> None:
        self._store = store
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._job: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # one with a shorter lease than all others was added
        self._shortest_ms = 0
        self.held: dict[str, HeldLock] = {}

    def add(self, held: HeldLock) -> None:
        self.held[held.id] = held
        self._look_after(held)

    def _look_after(self, held: HeldLock) -> None:
        if self._job is None or self._job.done():
            self._shortest_ms = held.grant.ttl_ms
            self._job = self._loop.create_task(self._work(), name="ade-lock-renewals")
        elif held.grant.ttl_ms < self._shortest_ms:
            self._hurry.set()

    def add_from_thread(self, held: HeldLock) -> None:
        """The same by another thread. Usually the job is there, and has nothing to do for a while."""
        self.held[held.id] = held
        job = self._job
        if job is None or job.done() or held.grant.ttl_ms < self._shortest_ms:
            self._loop.call_soon_threadsafe(self._look_after, held)

    def remove(self, held: HeldLock) -> None:
        self.held.pop(held.id, None)
        held.forget()

    def renew_late(self) -> None:
        """By another thread, for a loop that is blocked: those that should have been renewed by now."""
        late = [held for held in list(self.held.values()) if held.is_late and not held.is_lost]
        by_id = {held.id: held for held in late}
        for namespace, ids in by_namespace(held.grant for held in late).items():
            asked_at = self._loop.time()
            for request_id, grant in zip(ids, self._store.renew_blocking(namespace, ids), strict=True):
                if grant is not None:
                    by_id[request_id].extend_from_thread(grant, asked_at)
                else:
                    self._loop.call_soon_threadsafe(by_id[request_id].lose, "it ran out or was taken away")

    async def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def _work(self) -> None:
        """Locks come and go while this sleeps, and usually need nothing from it."""
        renewed_at = self._loop.time()
        while True:
            self._hurry.clear()
            self._shortest_ms = min((held.grant.ttl_ms for held in list(self.held.values())), default=self._shortest_ms)
            pause = renewed_at + self._interval_s() - self._loop.time()
            if pause > 0:
                await either(self._hurry, pause)
                continue
            if not self.held:
                self._job = None  # first: who comes now from another thread finds nobody at work
                if not self.held:
                    return
                self._job = asyncio.current_task()
            renewed_at = self._loop.time()
            try:
                await self._renew()
                await self._runtime.current()
            except StoreError as error:  # every lock has an alarm of its own
                log.warning("lock.not_renewed", locks=len(self.held), error=str(error))

    def _interval_s(self) -> float:
        heartbeat_s = (self._runtime.peek() or Runtime()).get("lock.heartbeat_interval_s")
        return min(self._shortest_ms / 1000 / _IN_ONE_LEASE, heartbeat_s)

    async def _renew(self) -> None:
        for namespace, ids in by_namespace(held.grant for held in list(self.held.values())).items():
            asked_at = self._loop.time()
            for request_id, grant in zip(ids, await self._store.renew(namespace, ids), strict=True):
                held = self.held.get(request_id)
                if held is not None and grant is not None:
                    held.extend(grant, asked_at)
                elif held is not None:
                    self.remove(held)
                    held.lose("it ran out or was taken away")


async def either(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
