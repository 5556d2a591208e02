"""Everybody on one event loop who stands in line: one job asks for all of them, and finds those who wait in a ring."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from ade.core.errors import DeadlockVictim, LockTimeout, StoreError
from ade.core.locks.records import LockRequest, LockState
from ade.governance.locks.renewals import by_namespace
from ade.governance.locks.rings import RingWatch
from ade.logs import Log
from ade.ports import LOCK, Hints, LockStore

_LOOK_S = 1.0  # at the latest: the wake-up may have been lost, or whoever holds the lock may have died
_BEAT_S = 5.0
_FIRST_RING_S, _RING_S, _CONFIRM_S = 1.0, 5.0, 0.25
_MOST_BURIED = 100
log = Log("ade.locks")


class _Waiter:
    def __init__(self, request: LockRequest, now: float) -> None:
        self.request = request
        self.answer: asyncio.Future[LockRequest] = asyncio.get_running_loop().create_future()
        self.ring_at = now + _FIRST_RING_S


class WaitingRoom:
    def __init__(
        self,
        store: LockStore,
        hints: Hints,
        *,
        finds_rings: bool,
        dice: Callable[[], float] = random.random,
        time: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._hints = hints
        self._finds_rings = finds_rings
        self._dice = dice
        self._loop = asyncio.get_running_loop()
        self._time = time or self._loop.time
        self._waiting: dict[str, _Waiter] = {}
        self._watches: dict[str, RingWatch] = {}
        self._job: asyncio.Task[None] | None = None
        self._beat_at = 0.0

    async def wait(self, request: LockRequest) -> LockRequest:
        """Until it is granted; an upgrade, until it is in no line any more. Raises LockTimeout, DeadlockVictim."""
        waiter = self._waiting[request.id] = _Waiter(request, self._time())
        if self._job is None or self._job.done():
            self._job = self._loop.create_task(self._work(), name="ade-lock-waiters")
        try:
            return await waiter.answer
        finally:
            self._waiting.pop(request.id, None)

    async def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def _work(self) -> None:
        self._beat_at = self._time() + _BEAT_S
        while self._waiting:
            seen = self._hints.generation(LOCK)
            try:
                await self._look()
            except StoreError as error:
                log.warning("lock.store_away", waiting=len(self._waiting), error=str(error))
            if self._waiting:
                await self._hints.wait(LOCK, seen, self._pause())

    def _pause(self) -> float:
        pause = _LOOK_S * (0.5 + 0.5 * self._dice())
        if not self._finds_rings:
            return pause
        soonest = min(waiter.ring_at for waiter in self._waiting.values()) - self._time()
        return max(min(pause, soonest), 0.01)

    async def _look(self) -> None:
        now = self._time()
        await self._store.bury(_MOST_BURIED)
        if now >= self._beat_at:
            self._beat_at = now + _BEAT_S * (0.8 + 0.2 * self._dice())
            for namespace, ids in self._ids():
                self._tell(zip(ids, await self._store.poll(namespace, ids), strict=True))
        else:
            for namespace, ids in self._ids():
                self._tell(zip(ids, await self._store.look(namespace, ids), strict=True))
        if self._finds_rings:
            await self._find_rings(now)

    def _ids(self) -> Iterable[tuple[str, Sequence[str]]]:
        requests: Mapping[str, Sequence[str]] = by_namespace(waiter.request for waiter in self._waiting.values())
        return list(requests.items())

    def _tell(self, answers: Iterable[tuple[str, LockRequest | None]]) -> None:
        for request_id, answer in answers:
            waiter = self._waiting.get(request_id)
            if waiter is None or waiter.answer.done() or (answer is not None and answer.is_waiting):
                continue
            resources = ", ".join(waiter.request.resources)
            if answer is not None and answer.state is LockState.VICTIM:
                waiter.answer.set_exception(DeadlockVictim(f"the wait for {resources} was part of a ring", answer.seq))
            elif answer is not None:
                waiter.answer.set_result(answer)
            elif waiter.request.upgrades is not None:  # widened, or its share is gone: that is the caller's to find out
                waiter.answer.set_result(waiter.request)
            else:
                waiter.answer.set_exception(LockTimeout(f"{resources} was locked by others for too long"))

    async def _find_rings(self, now: float) -> None:
        """Once somebody has waited for long, for all who wait in its namespace: a ring must be seen twice as it is."""
        for namespace in {waiter.request.namespace for waiter in self._waiting.values() if now >= waiter.ring_at}:
            watch = self._watches.setdefault(namespace, RingWatch(self._store, namespace))
            waiters = [waiter for waiter in self._waiting.values() if waiter.request.namespace == namespace]
            is_news = await watch.look({waiter.request.scope for waiter in waiters})
            for waiter in waiters:
                waiter.ring_at = now + (_CONFIRM_S if is_news else _RING_S)
