"""Locks of programs elsewhere: they renew what they hold themselves, and ask again and again how they stand in line."""

import asyncio
import os
from collections.abc import Sequence

from ade.core.errors import DeadlockVictim, LockLost, LockTimeout
from ade.core.locks.asking import leased
from ade.core.locks.limits import LockLimits
from ade.core.locks.records import LockRequest, LockState
from ade.core.locks.wishes import LockMode
from ade.governance.locks.leaving import Leaving
from ade.governance.locks.waiting import Waiter, WaitingRoom
from ade.governance.runtime import Runtime, RuntimeCache
from ade.ports import LockStore

Standing = LockRequest | None  # how a request stands; None: it is gone


class LockLender:
    def __init__(
        self, store: LockStore, waiting: WaitingRoom, leaving: Leaving, *, limits: LockLimits, runtime: RuntimeCache
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

    async def _stand(self, waiter: Waiter, known: LockRequest, wait_ms: int, *, stays: bool) -> Standing:
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

    async def _hears(self, waiter: Waiter, wait_ms: int, *, look_at_once: bool = False) -> bool:
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


def leased_by(request: LockRequest, runtime: Runtime) -> LockRequest:
    """With the usual lease if it names none. Raises InvalidLock."""
    usual_ms = round(runtime.get("lock.default_ttl_s") * 1000)
    return leased(request, usual_ms=usual_ms, longest_ms=longest_ms(runtime))


def longest_ms(runtime: Runtime) -> int:
    return round(runtime.get("lock.max_ttl_s") * 1000)
