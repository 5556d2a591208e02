"""The lock client with direct store access: acquire, wait, detect deadlocks, renew, and release."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from ade.approvals.repository import check_lock_permission, newer_rulebook
from ade.approvals.rulebook import Rulebook
from ade.common.calls import either
from ade.errors import (
    AdeError,
    DeadlockVictim,
    LockLost,
    LockPlaceLost,
    LockRateLimited,
    LockTimeout,
    StoreError,
    StoreUnavailable,
    TooManyLocks,
)
from ade.locks.detector import DeadlockDetector, TaskWaits
from ade.locks.holder import Granted
from ade.locks.model import LockLimits, LockRequest, LockState, by_namespace
from ade.locks.requests import leased
from ade.logs import Log
from ade.settings.runtime import RuntimeSettings
from ade.settings.runtime import load as load_runtime
from ade.stores.ports import LOST, Stores
from ade.stores.resource_ports import LockStore, LockUpdates
from ade.stores.wakeups import CachedDocument

log = Log("ade.locks")


# The waiters of one event loop: one asyncio task polls for all of them and detects deadlocks among them.


_LOOK_S = 1.0  # the maximum poll interval: a wake-up can be lost, or the holder can die
_BEAT_S = 5.0
_FIRST_RING_S, _RING_S, _CONFIRM_S = 1.0, 5.0, 0.25
_MOST_BURIED = 100


class LockWaiter:
    """A request that is about to be queued, or is waiting."""

    def __init__(self, request: LockRequest, now: float, wait_ms: int | None = None) -> None:
        self.request = request
        self.until = None if wait_ms is None else now + wait_ms / 1000  # from then on the store may remove it
        self.answer: asyncio.Future[LockRequest] = asyncio.get_running_loop().create_future()
        self.is_in_line = False
        self.ring_at = now + _FIRST_RING_S
        self.waited_at = now  # not granted before this time: a call that began then found it waiting


class LockWaiters:
    """The waiting lock requests of one event loop."""

    def __init__(
        self,
        store: LockStore,
        *,
        finds_rings: Callable[[], Awaitable[bool]],
        detector: DeadlockDetector | None = None,
        randomness: Callable[[], float] = random.random,
        time: Callable[[], float] | None = None,
        rest: Callable[[asyncio.Event, float], Awaitable[None]] = either,
    ) -> None:
        self._store = store
        self._rest = rest
        self._finds_rings = finds_rings
        self._dice = randomness
        self._loop = asyncio.get_running_loop()
        self._time = time or self._loop.time
        self._waiting: dict[str, LockWaiter] = {}
        self._detector = detector or DeadlockDetector(store, time=self._time)
        self._job: asyncio.Task[None] | None = None
        self._news = asyncio.Event()  # a notification arrived that does not name a request
        self._beat_at = self._look_at = 0.0

    def expect(self, request: LockRequest, asked_at: float | None = None, *, wait_ms: int | None = None) -> LockWaiter:
        """Register a request before it is sent: it may be granted before the caller knows that it has to wait."""
        now = self._time() if asked_at is None else asked_at
        waiter = self._waiting[request.id] = LockWaiter(request, now, wait_ms)
        return waiter

    def forget(self, waiter: LockWaiter) -> None:
        self._waiting.pop(waiter.request.id, None)

    async def wait(self, waiter: LockWaiter, *, look_at_once: bool = False) -> LockRequest:
        """Wait until it is granted; an upgrade, until it leaves the wait queue. Raises LockTimeout, LockPlaceLost,
        DeadlockVictim.

        Set `look_at_once` for a request that was not registered before it was sent: its notification may have been
        missed.
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
        """Wait for notifications from the store, and poll all waiters periodically as a fallback."""
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
                waiter.answer.set_exception(
                    DeadlockVictim(f"the wait for {resources} was part of a deadlock", answer.seq)
                )
            elif answer is not None:
                waiter.answer.set_result(answer)
            elif waiter.request.upgrades is not None:  # upgraded, or its shared lock is gone: the caller checks
                waiter.answer.set_result(waiter.request)
            elif waiter.until is not None and self._time() >= waiter.until:
                waiter.answer.set_exception(LockTimeout(f"{resources} was locked by others the whole time"))
            else:
                waiter.answer.set_exception(place_lost(waiter.request))

    async def _find_rings(self, now: float) -> None:
        """Detect deadlocks once a request has waited long. Each must be seen twice."""
        is_on = await self._finds_rings()  # the feature can be disabled at run time
        waiters = list(self._waiting.values())
        is_news = is_on and await self._detector.look([waiter.request for waiter in waiters if waiter.is_in_line])
        for waiter in waiters:
            waiter.ring_at = max(waiter.ring_at if not is_on else 0.0, now + (_CONFIRM_S if is_news else _RING_S))


# Cancellation: a lock that was granted to a cancelled caller is released.


Answer = TypeVar("Answer")


class LockCancellation:
    """Releases abandoned requests of one event loop. `release` releases grants or removes waiters of a namespace."""

    def __init__(self, release: Callable[[str, Sequence[str]], Awaitable[object]]) -> None:
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._jobs: set[asyncio.Task[None]] = set()

    async def or_leave(self, request: LockRequest, waiting: Awaitable[Answer]) -> Answer:
        """Return the result; on an error or cancellation, release whatever may have been granted."""
        try:
            return await waiting
        except (TooManyLocks, LockRateLimited):  # nothing was stored, so there is nothing to release
            raise
        except BaseException:
            await self.leave(request)
            raise

    async def leave(self, request: LockRequest) -> None:
        """Release it, or leave the wait queue."""
        try:
            await self._release(request.namespace, [request.id])
        except (AdeError, TimeoutError) as error:  # its lease expires on its own
            log.warning("lock.not_released", request_id=request.id, error=str(error))
        except asyncio.CancelledError:  # the caller is gone, but others wait for the lock
            self.leave_later(request)
            raise

    def leave_later(self, request: LockRequest) -> None:
        job = self._loop.create_task(self.leave(request))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._jobs, return_exceptions=True)


_FRESH = 3  # a lease with at most 1/3 of its time elapsed needs no renewal before use


class StoreLockClient:
    """A LockClient with direct store access, plus operations that only a store offers. Belongs to one event loop."""

    renews_at_once = 10_000

    def __init__(self, stores: Stores, *, limits: LockLimits | None = None, finds_rings: bool = True) -> None:
        self.store = stores.locks
        self._wakeups = stores.wakeups
        self.limits = limits or LockLimits()
        self._loop = asyncio.get_running_loop()
        self._stores = stores
        self._settings = CachedDocument(stores, _load_settings)
        self.leaving = LockCancellation(self.store.release)
        self._finds_rings = finds_rings  # the default, unless overridden in the store
        # Each has its own detector, because that remembers what its own waiters saw at the last look.
        detector = DeadlockDetector(self.store, stores)
        self.waiting = LockWaiters(self.store, finds_rings=self._looks_for_rings, detector=detector)
        self.task_waits = TaskWaits(stores, DeadlockDetector(self.store, stores), is_on=self._looks_for_rings)

    async def acquire(self, request: LockRequest, *, wait_ms: int | None, goes_on: Callable[[], bool]) -> Granted:
        """See LockClient. A store responds or fails immediately, so there is nothing to retry."""
        request = await self.leased(request)
        await self.permit(request)
        waiter = self.waiting.expect(request, wait_ms=wait_ms)
        try:
            asking = self.store.acquire(request, wait_ms=wait_ms, limits=self.limits)
            answer = await self.leaving.or_leave(request, asking)
            if answer is None:
                raise _is_taken(request)
            if not answer.is_granted:
                answer = await self.leaving.or_leave(request, self.waiting.wait(waiter))
        finally:
            self.waiting.forget(waiter)
        if self._is_old(answer, waiter):
            return await self._renewed(answer)
        return answer, waiter.waited_at

    def _is_old(self, grant: LockRequest, waiter: LockWaiter) -> bool:
        """Whether much of the lease may have elapsed: it was granted at some time since the last poll."""
        return self._loop.time() - waiter.waited_at > grant.ttl_ms / 1000 / _FRESH

    async def _renewed(self, grant: LockRequest) -> Granted:
        since = self._loop.time()
        [renewed] = await self.leaving.or_leave(grant, self.store.renew(grant.namespace, [grant.id]))
        if renewed is None:
            raise LockLost(f"{', '.join(grant.resources)} was granted, but expired before it was used")
        return renewed, since

    async def grant(self, request: LockRequest) -> LockRequest | None:
        """Return the grant if immediate; otherwise None, and the request waits unattended. A deadlock victim keeps its
        age.

        The grant is not renewed unless a holder takes it.
        """
        request = await self.capped(request)
        await self.permit(request)
        answer = await self.store.acquire(request, wait_ms=None, limits=self.limits)
        if answer is not None and answer.state is LockState.VICTIM:
            await self.store.release(request.namespace, [request.id])
            answer = await self.store.acquire(request, wait_ms=None, first_seq=answer.seq, limits=self.limits)
        return answer if answer is not None and answer.is_granted else None

    async def permit(self, request: LockRequest) -> None:
        """Raise LockNotPermitted unless the rulebook allows the account of the request to lock these resources."""
        if await self.has_rules():
            await check_lock_permission(self._stores, self._known.rules, request.account, request.resources)

    async def has_rules(self) -> bool:
        """Whether the rulebook says who may lock what."""
        return bool((self._settings.fresh() or await self._settings.current()).rules)

    async def leased(self, request: LockRequest) -> LockRequest:
        """Return the request with the default lease if it has none. Raises InvalidLock."""
        settings = self._settings.fresh() or await self._settings.current()
        return leased(request, usual_ms=settings.usual_ms, longest_ms=settings.longest_ms)

    async def capped(self, request: LockRequest) -> LockRequest:
        """Limit a lease that no user has chosen, such as a worker's, to the maximum of the store."""
        most_ms = (self._settings.fresh() or await self._settings.current()).longest_ms
        return structs.replace(request, ttl_ms=most_ms) if request.ttl_ms > most_ms else request

    async def renew(
        self, namespace: str, request_ids: Sequence[str], *, within_s: float
    ) -> Sequence[LockRequest | None]:
        """See LockClient. A store has its own timeouts."""
        return await self.store.renew(namespace, request_ids)

    async def release(self, request: LockRequest) -> None:
        await self.leaving.leave(request)

    def watch_losses(self, tell: Callable[[], None], held: Callable[[], Iterable[LockRequest]]) -> Callable[[], object]:
        """See LockClient. Every process is notified of every forced release: they are rare."""
        return self._wakeups.follow(LOST, tell)

    @property
    def heartbeat_s(self) -> float:
        return self._known.runtime.get("lock.heartbeat_interval_s")

    async def refresh(self) -> None:
        await self._settings.current()

    @property
    def _known(self) -> "_LockSettings":
        return self._settings.peek() or _DEFAULTS

    async def upgrade(
        self, grant: LockRequest, resource: str, *, upgrade_id: str, wait_ms: int | None
    ) -> tuple[LockRequest | None, float]:
        """Make a shared lock exclusive, ahead of all waiters.

        Returns None if the grant expired meanwhile, and a grant with its old mode if the wait timed out. Raises
        LockTimeout, LockLost, UpgradeDeadlock.
        """
        asked_at = self._loop.time()
        waiter = self.waiting.expect(structs.replace(grant, id=upgrade_id, upgrades=grant.id))
        try:
            answer = await self.store.upgrade(
                grant.namespace, grant.id, resource, upgrade_id=upgrade_id, wait_ms=wait_ms
            )
            if answer is None:
                raise LockTimeout(f"others share the lock on {resource}")
            if answer.id == grant.id:
                return answer, asked_at
            await self.leaving.or_leave(waiter.request, self.waiting.wait(waiter))
        finally:
            self.waiting.forget(waiter)
        asked_at = self._loop.time()
        [standing] = await self.store.renew(grant.namespace, [grant.id])
        return standing, asked_at

    async def downgrade(self, grant: LockRequest, resource: str) -> Granted:
        """Make an exclusive lock shared, immediately. Raises LockLost."""
        asked_at = self._loop.time()
        return await self.store.downgrade(grant.namespace, grant.id, resource), asked_at

    async def close(self) -> None:
        await self.leaving.close()
        await self.waiting.close()
        await self.task_waits.close()

    # For threads without an event loop

    @property
    def is_up_to_date(self) -> bool:
        """Whether the settings are loaded. Thread-safe; if false, the thread must wait for `refresh` first."""
        return self._settings.fresh() is not None

    @property
    def is_governed(self) -> bool:
        """Whether the rulebook says who may lock what: then a thread must `permit` its request on the event loop."""
        return bool(self._known.rules)

    def acquire_blocking(self, request: LockRequest, *, wait_ms: int | None) -> Granted:
        """Return the grant, or the waiting request to pass to `wait_in_line`. Raises the errors of `acquire`."""
        settings, asked_at = self._known, self._loop.time()
        request = leased(request, usual_ms=settings.usual_ms, longest_ms=settings.longest_ms)
        try:
            answer = self.store.acquire_blocking(request, wait_ms=wait_ms, limits=self.limits)
        except (TooManyLocks, LockRateLimited):
            raise
        except BaseException:
            self._loop.call_soon_threadsafe(self.leaving.leave_later, request)
            raise
        if answer is None:
            raise _is_taken(request)
        return answer, asked_at

    async def wait_in_line(self, request: LockRequest, asked_at: float, wait_ms: int | None = None) -> Granted:
        """Wait, on the event loop, for a request that a thread sent at `asked_at` and that was queued."""
        waiter = self.waiting.expect(request, asked_at, wait_ms=wait_ms)
        try:
            answer = await self.leaving.or_leave(request, self.waiting.wait(waiter, look_at_once=True))
        finally:
            self.waiting.forget(waiter)
        return await self._renewed(answer) if self._is_old(answer, waiter) else (answer, waiter.waited_at)

    def renew_blocking(self, namespace: str, request_ids: Sequence[str]) -> Sequence[LockRequest | None]:
        """Renew from a thread while this event loop is blocked. Raises StoreError."""
        return self.store.renew_blocking(namespace, request_ids)

    def release_blocking(self, request: LockRequest) -> None:
        try:
            self.store.release_blocking(request.namespace, [request.id])
        except StoreError as error:  # its lease expires on its own
            log.warning("lock.not_released", request_id=request.id, error=str(error))

    async def _looks_for_rings(self) -> bool:
        return (await self._settings.current()).runtime.is_on("deadlock_detection", otherwise=self._finds_rings)


class _LockSettings:
    """What the settings and the rulebook say about locks."""

    def __init__(self, runtime: RuntimeSettings, rulebook: Rulebook) -> None:
        self.runtime = runtime
        self.rulebook = rulebook
        self.rules = rulebook.locks
        self.usual_ms = round(runtime.get("lock.default_ttl_s") * 1000)
        self.longest_ms = round(runtime.get("lock.max_ttl_s") * 1000)


_DEFAULTS = _LockSettings(RuntimeSettings(), Rulebook())


async def _load_settings(stores: Stores, known: _LockSettings | None) -> _LockSettings:
    rulebook = newer_rulebook(stores, None if known is None else known.rulebook)
    return _LockSettings(*await asyncio.gather(load_runtime(stores), rulebook))


def place_lost(request: LockRequest) -> LockPlaceLost:
    """Create the error for a waiter whose place is gone although there was time left."""
    return LockPlaceLost(
        f"the place in the queue for {', '.join(request.resources)} is gone: it was released by force, it was not"
        " renewed in time, or the store has lost data"
    )


def _is_taken(request: LockRequest) -> LockTimeout:
    return LockTimeout(f"{', '.join(request.resources)} is locked by another owner")
