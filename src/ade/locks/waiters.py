"""Everybody on one event loop who stands in line: one job asks for all of them, and finds those who wait in a ring."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from ade.errors import DeadlockVictim, LockTimeout, StoreError, StoreUnavailable
from ade.locks.deadlocks import Cycle, Resolution, WaitGraph, resolution_of
from ade.locks.held_lock import either
from ade.locks.model import LockRequest, LockState, by_namespace
from ade.logs import Log
from ade.stores.resource_ports import LockQuery, LockStore, LockUpdates

# Looks for rings of waiters, twice before anything is done about one: a book is read while others write in it.


MOST_REQUESTS = 10_000  # of a namespace that are looked at
log = Log("ade.locks")


class DeadlockDetector:
    """For one namespace. `look` is called now and then by whoever waits in it."""

    def __init__(self, store: LockStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._suspected: dict[str, frozenset[tuple[str, str]]] = {}  # scope -> the ring it was in at the last look

    async def look(self, scopes: Iterable[str]) -> bool:
        """Open rings that were there at the last look too; True if some are seen for the first time, or were opened and
        others may be behind them: look again soon."""
        requests = {
            one.id: one for one in await self._store.find(LockQuery(namespace=self._namespace, limit=MOST_REQUESTS))
        }
        waits = WaitGraph(requests.values())
        suspected, opened = dict[str, frozenset[tuple[str, str]]](), set[str]()
        for scope in scopes:
            ring = waits.ring_of(scope)
            if ring is None or not opened.isdisjoint(edge.scope for edge in ring):  # who was in an opened one has moved
                continue
            seen = frozenset((edge.waiter, edge.blocker) for edge in ring)
            if self._suspected.get(scope) == seen:
                await self._open(ring, resolution_of(ring, requests))
                opened.update(edge.scope for edge in ring)
            else:
                suspected[scope] = seen
        self._suspected = suspected
        return bool(suspected or opened)

    async def _open(self, ring: Cycle, cure: Resolution) -> None:
        scopes = tuple(edge.scope for edge in ring)
        log.warning("lock.deadlock", namespace=self._namespace, scopes=scopes, cure=str(cure))
        await self._store.cure(self._namespace, cure, scopes)


_LOOK_S = 1.0  # at the latest: the wake-up may have been lost, or whoever holds the lock may have died
_BEAT_S = 5.0
_FIRST_RING_S, _RING_S, _CONFIRM_S = 1.0, 5.0, 0.25
_MOST_BURIED = 100


class LockWaiter:
    """A request on its way into a line, or in it."""

    def __init__(self, request: LockRequest, now: float) -> None:
        self.request = request
        self.answer: asyncio.Future[LockRequest] = asyncio.get_running_loop().create_future()
        self.is_in_line = False
        self.ring_at = now + _FIRST_RING_S
        self.waited_at = now  # it was not granted before this moment: then a call began that found it waiting


class LockWaiters:
    def __init__(
        self,
        store: LockStore,
        *,
        finds_rings: Callable[[], Awaitable[bool]],
        dice: Callable[[], float] = random.random,
        time: Callable[[], float] | None = None,
        rest: Callable[[asyncio.Event, float], Awaitable[None]] = either,
    ) -> None:
        self._store = store
        self._rest = rest
        self._finds_rings = finds_rings
        self._dice = dice
        self._loop = asyncio.get_running_loop()
        self._time = time or self._loop.time
        self._waiting: dict[str, LockWaiter] = {}
        self._watches: dict[str, DeadlockDetector] = {}
        self._job: asyncio.Task[None] | None = None
        self._news = asyncio.Event()  # something has happened, nobody knows to whom
        self._beat_at = self._look_at = 0.0

    def expect(self, request: LockRequest, asked_at: float | None = None) -> LockWaiter:
        """Before it is asked for: it may be let in before the caller knows that it has to wait."""
        waiter = self._waiting[request.id] = LockWaiter(request, self._time() if asked_at is None else asked_at)
        return waiter

    def forget(self, waiter: LockWaiter) -> None:
        self._waiting.pop(waiter.request.id, None)

    async def wait(self, waiter: LockWaiter, *, look_at_once: bool = False) -> LockRequest:
        """Until it is granted; an upgrade, until it is in no line any more. Raises LockTimeout, DeadlockVictim.

        One that was not expected before it was asked for must be looked at, lest it was let in unheard.
        """
        if look_at_once:
            self._news.set()
        waiter.is_in_line = True
        if self._job is None or self._job.done():
            self._job = self._loop.create_task(self._work(), name="ade-lock-waiters")
        return await waiter.answer

    async def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)
        for waiter in list(self._waiting.values()):
            if waiter.is_in_line and not waiter.answer.done():
                waiter.answer.set_exception(StoreUnavailable("the store was closed while this waited for a lock"))

    async def _work(self) -> None:
        """Those who were let in are told of it by the store. Now and then everybody is looked at all the same."""
        self._beat_at = self._time() + _BEAT_S
        unfollow = self._store.follow(self._hear)
        try:
            while self._waiting:
                self._news.clear()
                try:
                    await self._look()
                except StoreError as error:
                    log.warning("lock.store_away", waiting=len(self._waiting), error=str(error))
                if self._waiting:
                    await self._rest(self._news, self._pause())
        finally:
            unfollow()

    def _hear(self, news: LockUpdates | None) -> None:
        if news is None:
            self._news.set()
            return
        self._tell((request.id, request) for request in news.settled if request.id in self._waiting)
        self._tell((request_id, None) for request_id in news.gone if request_id in self._waiting)

    def _pause(self) -> float:
        pause = _LOOK_S * (0.5 + 0.5 * self._dice())
        soonest = min(waiter.ring_at for waiter in self._waiting.values()) - self._time()
        return max(min(pause, soonest), 0.01)

    async def _look(self) -> None:
        now = self._time()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S / 2
            await self._store.bury(_MOST_BURIED)
        ask = self._store.look
        if now >= self._beat_at:
            self._beat_at = now + _BEAT_S * (0.8 + 0.2 * self._dice())
            ask = self._store.poll
        for namespace, ids in self._ids():
            began = self._time()
            self._tell(zip(ids, await ask(namespace, ids), strict=True), began)
        if any(now >= waiter.ring_at for waiter in self._waiting.values()):
            await self._find_rings(now)

    def _ids(self) -> Iterable[tuple[str, Sequence[str]]]:
        in_line = (waiter.request for waiter in self._waiting.values() if waiter.is_in_line)
        requests: Mapping[str, Sequence[str]] = by_namespace(in_line)
        return list(requests.items())

    def _tell(self, answers: Iterable[tuple[str, LockRequest | None]], began: float = 0.0) -> None:
        for request_id, answer in answers:
            waiter = self._waiting.get(request_id)
            if waiter is None or waiter.answer.done():
                continue
            if answer is not None and answer.is_waiting:
                waiter.waited_at = max(waiter.waited_at, began)
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
        if not await self._finds_rings():  # it may be switched while they wait
            for waiter in self._waiting.values():
                waiter.ring_at = max(waiter.ring_at, now + _RING_S)
            return
        for namespace in {waiter.request.namespace for waiter in self._waiting.values() if now >= waiter.ring_at}:
            watch = self._watches.setdefault(namespace, DeadlockDetector(self._store, namespace))
            waiters = [waiter for waiter in self._waiting.values() if waiter.request.namespace == namespace]
            is_news = await watch.look({waiter.request.scope for waiter in waiters})
            for waiter in waiters:
                waiter.ring_at = now + (_CONFIRM_S if is_news else _RING_S)
