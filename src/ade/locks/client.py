"""The locks of one event loop: asked for, waited for, kept, widened, narrowed and let go."""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from msgspec import structs

from ade.errors import DeadlockVictim, InvalidLock, LockLost, LockRateLimited, LockTimeout, StoreError, TooManyLocks
from ade.locks.held_lock import HeldLock, LockRenewer
from ade.locks.model import LockLimits, LockRequest, LockState
from ade.locks.modes import LockMode
from ade.locks.requests import leased
from ade.locks.waiters import LockWaiter, LockWaiters
from ade.logs import Log
from ade.settings.runtime import RuntimeSettings, RuntimeSettingsCache
from ade.stores.ports import Stores
from ade.stores.resource_ports import LockStore

# Giving back what a request may have brought, when nobody waits for it any more.


Answer = TypeVar("Answer")
log = Log("ade.locks")


class LockCancellation:
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


# Locks of programs elsewhere: they renew what they hold themselves, and ask again and again how they stand in line.


Standing = LockRequest | None  # how a request stands; None: it is gone


class LockLeases:
    def __init__(
        self,
        store: LockStore,
        waiting: LockWaiters,
        leaving: LockCancellation,
        *,
        limits: LockLimits,
        runtime: RuntimeSettingsCache,
    ) -> None:
        self._store = store
        self._waiting = waiting
        self._leaving = leaving
        self._limits = limits
        self._runtime = runtime

    async def lend(self, request: LockRequest, *, wait_ms: int, stays: bool) -> LockRequest:
        """Granted within this time, or else how it stands in line; one that does not stay leaves it then.

        The same request again tells how it stands. Whoever stops waiting has left the line. Raises LockTimeout,
        DeadlockVictim, TooManyLocks, LockRateLimited, InvalidLock.
        """
        request = leased_by(request, self._runtime.fresh() or await self._runtime.current())
        waiter = self._waiting.expect(request)
        try:
            in_line_ms = None if stays else wait_ms
            asking = self._store.acquire(request, wait_ms=in_line_ms, limits=self._limits)
            answer = await self._leaving.or_leave(request, asking)
            if answer is not None and not answer.is_granted:
                answer = await self._leaving.or_leave(request, self._stand(waiter, answer, wait_ms, stays=stays))
        finally:
            self._waiting.forget(waiter)
        if answer is None:
            raise LockTimeout(f"{', '.join(request.resources)} is locked by somebody else")
        return answer

    async def _stand(self, waiter: LockWaiter, known: LockRequest, wait_ms: int, *, stays: bool) -> Standing:
        """Its whole lease, should it be granted meanwhile. Raises DeadlockVictim."""
        if known.is_waiting and stays and wait_ms <= 0:
            return known
        is_heard = known.is_waiting and await self._hears(waiter, wait_ms)
        if known.is_waiting and not is_heard and not stays:
            await self._leaving.leave(waiter.request)
            return None
        [answer] = await self.renew(known.namespace, [known.id])
        if answer is not None and answer.state is LockState.VICTIM:
            raise DeadlockVictim(f"the wait for {', '.join(answer.resources)} was part of a ring", answer.seq)
        return answer

    async def _hears(self, waiter: LockWaiter, wait_ms: int, *, look_at_once: bool = False) -> bool:
        """Whether it is in line no more. Raises LockTimeout, DeadlockVictim."""
        if wait_ms <= 0:
            return False
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._waiting.wait(waiter, look_at_once=look_at_once)
        except TimeoutError:
            return False
        return True

    async def renew(self, namespace: str, ids: Sequence[str]) -> list[Standing]:
        """Set leases anew, of grants and of places in line; None for those that are gone."""
        standing = dict(zip(ids, await self._store.renew(namespace, ids), strict=True))
        others = [request_id for request_id, grant in standing.items() if grant is None]
        if others:
            standing |= zip(others, await self._store.poll(namespace, others), strict=True)
        return [standing[request_id] for request_id in ids]

    async def renew_in_line(self, namespace: str, ids: Sequence[str], *, wait_ms: int) -> list[Standing]:
        """The same; where all of them wait in line, it waits for so long with them, until one does not any more."""
        standing = await self.renew(namespace, ids)
        in_line = [one for one in standing if one is not None and one.is_waiting]
        if wait_ms <= 0 or len(in_line) < len(ids):
            return standing
        waiters = [self._waiting.expect(one) for one in in_line]
        jobs = [asyncio.ensure_future(self._waiting.wait(waiter, look_at_once=True)) for waiter in waiters]
        try:
            await asyncio.wait(jobs, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job, waiter in zip(jobs, waiters, strict=True):
                job.cancel()
                self._waiting.forget(waiter)
            await asyncio.gather(*jobs, return_exceptions=True)
        return await self.renew(namespace, ids)

    async def upgrade(self, grant: LockRequest, resource: str, *, wait_ms: int) -> LockRequest:
        """From reading to writing, before all others who wait. Raises LockTimeout, LockLost, UpgradeDeadlock."""
        upgrade_id = os.urandom(16).hex()
        answer = await self._store.upgrade(
            grant.namespace, grant.id, resource, upgrade_id=upgrade_id, wait_ms=max(wait_ms, 0)
        )
        if answer is not None and answer.id != grant.id:
            waiter = self._waiting.expect(answer)
            try:
                await self._leaving.or_leave(answer, self._hears(waiter, wait_ms, look_at_once=True))
            finally:
                self._waiting.forget(waiter)
            await self._leaving.leave(answer)
            [answer] = await self._store.renew(grant.namespace, [grant.id])
            if answer is None:
                raise LockLost(f"the lock on {resource} ran out while it waited to be widened")
        if answer is None or answer.mode_of(resource) is not LockMode.EXCLUSIVE:
            raise LockTimeout(f"others read {resource} too")
        return answer


def leased_by(request: LockRequest, runtime: RuntimeSettings) -> LockRequest:
    """With the usual lease if it names none. Raises InvalidLock."""
    usual_ms = round(runtime.get("lock.default_ttl_s") * 1000)
    return leased(request, usual_ms=usual_ms, longest_ms=longest_ms(runtime))


def longest_ms(runtime: RuntimeSettings) -> int:
    return round(runtime.get("lock.max_ttl_s") * 1000)


_FRESH = 3  # a lease of which at most this part may be over needs no renewal before it is used


class LockClient:
    def __init__(self, stores: Stores, *, limits: LockLimits | None = None, finds_rings: bool = True) -> None:
        self._store = stores.locks
        self._limits = limits or LockLimits()
        self._loop = asyncio.get_running_loop()
        self._runtime = RuntimeSettingsCache(stores)
        self._renewals = LockRenewer(self._store, self._runtime)
        self._leaving = LockCancellation(self._store)
        self._finds_rings = finds_rings  # unless the store says otherwise
        self._waiting = LockWaiters(self._store, finds_rings=self._looks_for_rings)
        self.lender = LockLeases(self._store, self._waiting, self._leaving, limits=self._limits, runtime=self._runtime)

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
        request, asked_at = leased_by(request, self._runtime.peek() or RuntimeSettings()), self._loop.time()
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
        await self._renewals.close()
        for held in list(self._renewals.held.values()):
            await self.release(held)

    async def _looks_for_rings(self) -> bool:
        return (await self._runtime.current()).is_on("deadlock_detection", otherwise=self._finds_rings)

    def _check_is_here(self, held: HeldLock) -> None:
        if held.loop is not self._loop:
            raise InvalidLock("a lock of a task is widened or narrowed by naming it so; it is the worker's here")
