"""The locks of one event loop: asked for, waited for, kept, widened, narrowed and let go."""

import asyncio

from msgspec import structs

from ade.core.errors import InvalidLock, LockLost, LockRateLimited, LockTimeout, StoreError, TooManyLocks
from ade.core.locks.limits import LockLimits
from ade.core.locks.records import LockRequest, LockState
from ade.governance.locks.held import HeldLock
from ade.governance.locks.leaving import Leaving
from ade.governance.locks.lending import LockLender, leased_by, longest_ms
from ade.governance.locks.renewals import Renewals
from ade.governance.locks.waiting import WaitingRoom
from ade.governance.runtime import Runtime, RuntimeCache
from ade.logs import Log
from ade.ports import Stores

_FRESH = 3  # a lease of which at most this part may be over needs no renewal before it is used
log = Log("ade.locks")


class LockKeeper:
    def __init__(self, stores: Stores, *, limits: LockLimits | None = None, finds_rings: bool = True) -> None:
        self._store = stores.locks
        self._limits = limits or LockLimits()
        self._loop = asyncio.get_running_loop()
        self._runtime = RuntimeCache(stores)
        self._renewals = Renewals(self._store, self._runtime)
        self._leaving = Leaving(self._store)
        self._finds_rings = finds_rings  # unless the store says otherwise
        self._waiting = WaitingRoom(self._store, finds_rings=self._looks_for_rings)
        self.lender = LockLender(self._store, self._waiting, self._leaving, limits=self._limits, runtime=self._runtime)

    async def acquire(self, request: LockRequest, *, wait_ms: int | None, first_seq: int = 0) -> HeldLock:
        """Wait until it is granted. Raises LockTimeout, DeadlockVictim, TooManyLocks, LockRateLimited, InvalidLock."""
        request = leased_by(request, self._runtime.fresh() or await self._runtime.current())
        waiter = self._waiting.expect(request)
        try:
            asking = self._store.acquire(request, wait_ms=wait_ms, first_seq=first_seq, limits=self._limits)
            answer = await self._leaving.or_leave(request, asking)
            if answer is None:
                raise LockTimeout(f"{', '.join(request.resources)} is locked by somebody else")
            if not answer.is_granted:
                answer = await self._leaving.or_leave(request, self._waiting.wait(waiter))
        finally:
            self._waiting.forget(waiter)
        return await self._held(answer, waiter.waited_at)

    async def _held(self, grant: LockRequest, since: float) -> HeldLock:
        """It was granted after this moment, so its lease is good for so long from then on, or longer."""
        if self._loop.time() - since > grant.ttl_ms / 1000 / _FRESH:
            since = self._loop.time()
            [renewed] = await self._leaving.or_leave(grant, self._store.renew(grant.namespace, [grant.id]))
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
        request, asked_at = leased_by(request, self._runtime.peek() or Runtime()), self._loop.time()
        try:
            answer = self._store.acquire_blocking(request, wait_ms=wait_ms, limits=self._limits)
        except (TooManyLocks, LockRateLimited):
            raise
        except BaseException:
            self._loop.call_soon_threadsafe(self._leaving.leave_later, request)
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
            answer = await self._leaving.or_leave(request, self._waiting.wait(waiter, look_at_once=True))
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
        """Granted, and kept from now on; or None: then it stands in line unattended."""
        asked_at = self._loop.time()
        grant = await self.grant(request)
        if grant is None:
            return None
        held = HeldLock(grant, asked_at, self._loop)
        self._renewals.add(held)
        return held

    async def grant(self, request: LockRequest) -> LockRequest | None:
        """The same for somebody who renews it himself. One that gave way in a ring keeps its age."""
        most_ms = longest_ms(self._runtime.fresh() or await self._runtime.current())
        if request.ttl_ms > most_ms:  # nobody asked for that: it is as long as the lease of the worker
            request = structs.replace(request, ttl_ms=most_ms)
        answer = await self._store.acquire(request, wait_ms=None, limits=self._limits)
        if answer is not None and answer.state is LockState.VICTIM:
            await self._store.release(request.namespace, [request.id])
            answer = await self._store.acquire(request, wait_ms=None, first_seq=answer.seq, limits=self._limits)
        return answer if answer is not None and answer.is_granted else None

    def renew_late(self) -> None:
        """By a thread that goes on while this event loop is blocked. Raises StoreError."""
        self._renewals.renew_late()

    async def leave(self, request: LockRequest) -> None:
        """Let go of it, whether it is held here, waits in line, or is gone."""
        held = self._renewals.held.get(request.id)
        if held is not None:
            self._renewals.remove(held)
        await self._leaving.leave(request)

    async def release(self, held: HeldLock) -> None:
        """Let go. One that is lost already is nobody's concern any more."""
        self._renewals.remove(held)
        await self._leaving.leave(held.grant)

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
                await self._leaving.or_leave(waiter.request, self._waiting.wait(waiter))
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
        await self._leaving.close()
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
