"""The locks of one event loop: asked for, waited for, kept, widened, narrowed and let go."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from msgspec import structs

from ade.core.errors import InvalidLock, LockLost, LockRateLimited, LockTimeout, StoreError, TooManyLocks
from ade.core.locks.asking import leased
from ade.core.locks.limits import LockLimits
from ade.core.locks.records import LockRequest, LockState
from ade.governance.locks.held import HeldLock
from ade.governance.locks.renewals import Renewals
from ade.governance.locks.waiting import WaitingRoom
from ade.governance.runtime import Runtime, RuntimeCache
from ade.logs import Log
from ade.ports import Stores

Answer = TypeVar("Answer")
_FRESH = 3  # a lease of which at most this part may be over needs no renewal before it is used
log = Log("ade.locks")


class LockKeeper:
    def __init__(self, stores: Stores, *, limits: LockLimits | None = None, finds_rings: bool = True) -> None:
        self._store = stores.locks
        self._limits = limits or LockLimits()
        self._loop = asyncio.get_running_loop()
        self._runtime = RuntimeCache(stores)
        self._renewals = Renewals(self._store, self._runtime)
        self._leaving: set[asyncio.Task[None]] = set()
        self._finds_rings = finds_rings  # unless the store says otherwise
        self._waiting = WaitingRoom(self._store, finds_rings=self._looks_for_rings)

    async def acquire(self, request: LockRequest, *, wait_ms: int | None, first_seq: int = 0) -> HeldLock:
        """Wait until it is granted. Raises LockTimeout, DeadlockVictim, TooManyLocks, LockRateLimited, InvalidLock."""
        request = _leased(request, self._runtime.fresh() or await self._runtime.current())
        waiter = self._waiting.expect(request)
        try:
            asking = self._store.acquire(request, wait_ms=wait_ms, first_seq=first_seq, limits=self._limits)
            answer = await self._or_leave(request, asking)
            if answer is None:
                raise LockTimeout(f"{', '.join(request.resources)} is locked by somebody else")
            if not answer.is_granted:
                answer = await self._or_leave(request, self._waiting.wait(waiter))
        finally:
            self._waiting.forget(waiter)
        return await self._held(answer, waiter.waited_at)

    async def _held(self, grant: LockRequest, since: float) -> HeldLock:
        """It was granted after this moment, so its lease is good for so long from then on, or longer."""
        if self._loop.time() - since > grant.ttl_ms / 1000 / _FRESH:
            since = self._loop.time()
            [renewed] = await self._or_leave(grant, self._store.renew(grant.namespace, [grant.id]))
            if renewed is None:
                raise LockLost(f"{', '.join(grant.resources)} was granted, but ran out before anybody noticed")
            grant = renewed
        held = HeldLock(grant, since, self._loop)
        self._renewals.add(held)
        return held

    @property
    def is_up_to_date(self) -> bool:
        """Whether it knows the settings in the store; for any thread, which else waits for `learn` first."""
        return self._runtime.fresh() is not None

    async def learn(self) -> None:
        await self._runtime.current()

    def acquire_blocking(self, request: LockRequest, *, wait_ms: int | None) -> HeldLock | LockRequest:
        """By another thread: held, or how it stands in line; then `wait_in_line` is next. Raises as acquire does."""
        request, asked_at = _leased(request, self._runtime.peek() or Runtime()), self._loop.time()
        try:
            answer = self._store.acquire_blocking(request, wait_ms=wait_ms, limits=self._limits)
        except (TooManyLocks, LockRateLimited):
            raise
        except BaseException:
            self._loop.call_soon_threadsafe(self._leave_later, request)
            raise
        if answer is None:
            raise LockTimeout(f"{', '.join(request.resources)} is locked by somebody else")
        if not answer.is_granted:
            return answer
        held = HeldLock(answer, asked_at, self._loop, is_told=False)
        self._renewals.add_from_thread(held)
        return held

    async def wait_in_line(self, request: LockRequest, asked_at: float) -> HeldLock:
        """For one that another thread has asked for at this moment, and that stands in line."""
        waiter = self._waiting.expect(request, asked_at)
        try:
            answer = await self._or_leave(request, self._waiting.wait(waiter, look_at_once=True))
        finally:
            self._waiting.forget(waiter)
        return await self._held(answer, waiter.waited_at)

    def release_blocking(self, held: HeldLock) -> None:
        """By another thread."""
        self._renewals.remove(held)
        try:
            self._store.release_blocking(held.grant.namespace, [held.id])
        except StoreError as error:  # its lease runs out by itself
            log.warning("lock.not_released", request_id=held.id, error=str(error))

    async def take(self, request: LockRequest) -> HeldLock | None:
        """Granted, or None: then it stands in line unattended. One that gave way in a ring keeps its age."""
        longest_ms = _longest_ms(self._runtime.fresh() or await self._runtime.current())
        if request.ttl_ms > longest_ms:  # nobody asked for that: it is as long as the lease of the worker
            request = structs.replace(request, ttl_ms=longest_ms)
        asked_at = self._loop.time()
        answer = await self._store.acquire(request, wait_ms=None, limits=self._limits)
        if answer is not None and answer.state is LockState.VICTIM:
            await self._store.release(request.namespace, [request.id])
            asked_at = self._loop.time()
            answer = await self._store.acquire(request, wait_ms=None, first_seq=answer.seq, limits=self._limits)
        if answer is None or not answer.is_granted:
            return None
        held = HeldLock(answer, asked_at, self._loop)
        self._renewals.add(held)
        return held

    def renew_late(self) -> None:
        """By a thread that goes on while this event loop is blocked. Raises StoreError."""
        self._renewals.renew_late()

    async def leave(self, request: LockRequest) -> None:
        """Let go of it, whether it is held here, waits in line, or is gone."""
        held = self._renewals.held.get(request.id)
        if held is not None:
            self._renewals.remove(held)
        await self._leave(request)

    async def release(self, held: HeldLock) -> None:
        """Let go. One that is lost already is nobody's concern any more."""
        self._renewals.remove(held)
        await self._leave(held.grant)

    async def upgrade(self, held: HeldLock, resource: str, *, upgrade_id: str, wait_ms: int | None) -> None:
        """From reading to writing, before everybody else who waits. Raises LockTimeout, LockLost, UpgradeDeadlock."""
        self._check_is_here(held)
        held.check()
        grant, asked_at = held.grant, self._loop.time()
        waiter = self._waiting.expect(structs.replace(grant, id=upgrade_id, upgrades=grant.id))
        try:
            asking = self._store.upgrade(grant.namespace, grant.id, resource, upgrade_id=upgrade_id, wait_ms=wait_ms)
            answer: LockRequest | None = await asking
            is_to_wait = answer is not None and answer.id != grant.id
            if is_to_wait:
                await self._or_leave(waiter.request, self._waiting.wait(waiter))
        finally:
            self._waiting.forget(waiter)
        if is_to_wait:
            asked_at = self._loop.time()
            [answer] = await self._store.renew(grant.namespace, [grant.id])
            if answer is None:
                held.lose("it ran out while it waited to be widened")
        held.check()
        if answer is None or answer.mode_of(resource) is held.mode(resource):
            raise LockTimeout(f"others read {resource} too")
        held.extend(answer, asked_at)

    async def downgrade(self, held: HeldLock, resource: str) -> None:
        """From writing to reading, at once."""
        self._check_is_here(held)
        held.check()
        asked_at = self._loop.time()
        held.extend(await self._store.downgrade(held.grant.namespace, held.id, resource), asked_at)

    async def close(self) -> None:
        """Let go of everything."""
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._waiting.close()
        self._runtime.close()
        await self._renewals.close()
        for held in list(self._renewals.held.values()):
            await self.release(held)

    async def _looks_for_rings(self) -> bool:
        return (await self._runtime.current()).is_on("deadlock_detection", otherwise=self._finds_rings)

    def _check_is_here(self, held: HeldLock) -> None:
        if held.loop is not self._loop:
            raise InvalidLock("a lock of a task is widened or narrowed by naming it so; it is the worker's here")

    async def _or_leave(self, request: LockRequest, waiting: Awaitable[Answer]) -> Answer:
        """The answer; if it is an error, or nobody waits for it any more, what it may have brought is given back."""
        try:
            return await waiting
        except (TooManyLocks, LockRateLimited):  # it stands nowhere; whoever asks too often is not written for
            raise
        except BaseException:
            await self._leave(request)
            raise

    async def _leave(self, request: LockRequest) -> None:
        try:
            await self._store.release(request.namespace, [request.id])
        except StoreError as error:  # its lease runs out by itself
            log.warning("lock.not_released", request_id=request.id, error=str(error))
        except asyncio.CancelledError:  # nobody waits for that any more, but others wait for the lock
            self._leave_later(request)
            raise

    def _leave_later(self, request: LockRequest) -> None:
        job = self._loop.create_task(self._leave(request))
        self._leaving.add(job)
        job.add_done_callback(self._leaving.discard)


def _leased(request: LockRequest, runtime: Runtime) -> LockRequest:
    usual_ms = round(runtime.get("lock.default_ttl_s") * 1000)
    return leased(request, usual_ms=usual_ms, longest_ms=_longest_ms(runtime))


def _longest_ms(runtime: Runtime) -> int:
    return round(runtime.get("lock.max_ttl_s") * 1000)
