"""The locks of one event loop: asked for, waited for, kept, widened, narrowed and let go."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ade.core.errors import InvalidLock, LockLost, LockRateLimited, LockTimeout, StoreError, TooManyLocks
from ade.core.locks.limits import LockLimits
from ade.core.locks.records import LockRequest, LockState
from ade.governance.locks.held import HeldLock
from ade.governance.locks.renewals import Renewals
from ade.governance.locks.waiting import WaitingRoom
from ade.logs import Log
from ade.ports import Stores

Answer = TypeVar("Answer")
log = Log("ade.locks")


class LockKeeper:
    def __init__(self, stores: Stores, *, limits: LockLimits | None = None, finds_rings: bool = True) -> None:
        assert stores.locks is not None
        self._store = stores.locks
        self._limits = limits or LockLimits()
        self._loop = asyncio.get_running_loop()
        self._renewals = Renewals(self._store)
        self._leaving: set[asyncio.Task[None]] = set()
        self._waiting = WaitingRoom(self._store, stores.hints, finds_rings=finds_rings)

    async def acquire(self, request: LockRequest, *, wait_ms: int | None, first_seq: int = 0) -> HeldLock:
        """Wait until it is granted. Raises LockTimeout, DeadlockVictim, TooManyLocks, LockRateLimited."""
        asked_at = self._loop.time()
        asking = self._store.acquire(request, wait_ms=wait_ms, first_seq=first_seq, limits=self._limits)
        answer = await self._or_leave(request, asking)
        if answer is None:
            raise LockTimeout(f"{', '.join(request.resources)} is locked by somebody else")
        if not answer.is_granted:
            await self._or_leave(request, self._waiting.wait(answer))
            # It may have been granted a while ago: only a renewal tells how long the lease is still good for.
            asked_at = self._loop.time()
            [answer] = await self._or_leave(request, self._store.renew(request.namespace, [request.id]))
        if answer is None:
            raise LockLost(f"{', '.join(request.resources)} was granted, but ran out before anybody noticed")
        held = HeldLock(answer, asked_at, self._loop)
        self._renewals.add(held)
        return held

    async def take(self, request: LockRequest) -> HeldLock | None:
        """Granted, or None: then it stands in line unattended. One that gave way in a ring keeps its age."""
        asked_at = self._loop.time()
        answer = await self._store.acquire(request, wait_ms=None, limits=self._limits)
        if answer is not None and answer.state is LockState.VICTIM:
            await self._store.release(request.namespace, [request.id])
            asked_at = self._loop.time()
            answer = await self._store.acquire(request, wait_ms=None, first_seq=answer.seq, limits=self._limits)
        if answer is not None and answer.is_granted and answer.granted_at != answer.asked_at:
            asked_at = self._loop.time()  # it was granted a while ago: only a renewal tells how long that is good for
            [answer] = await self._store.renew(request.namespace, [request.id])
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
        asking = self._store.upgrade(grant.namespace, grant.id, resource, upgrade_id=upgrade_id, wait_ms=wait_ms)
        answer: LockRequest | None = await asking
        if answer is not None and answer.id != grant.id:
            await self._or_leave(answer, self._waiting.wait(answer))
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
        await self._renewals.close()
        for held in list(self._renewals.held.values()):
            await self.release(held)

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
            job = self._loop.create_task(self._leave(request))
            self._leaving.add(job)
            job.add_done_callback(self._leaving.discard)
            raise
