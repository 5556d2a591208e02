"""Locks of runs behind HTTP: those that came with their tasks, and those they ask the server for while they run."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from ade.errors import AdeError, DeadlockVictim, LockLost, LockTimeout, RunOver
from ade.locks.api import LONGEST_WAIT_S
from ade.locks.held_lock import HeldLock
from ade.locks.holders.run_locks import enter_scope
from ade.locks.model import LockItem, LockRequest, LockState
from ade.locks.requests import request_of
from ade.locks.views import RequestView
from ade.logs import Log
from ade.tasks.outcomes import Deferred
from ade.worker.messages import AcquiredLock, AcquireLock
from ade.worker.remote.connection import ServerConnection
from ade.worker.run import Run, StopReason

_ROUND_S = 10.0  # of waiting in line; a place that is not asked for is given away after 15
_MOST_IDS = 100  # in one request
_SOONEST_S, _LATEST_S = 0.3, 10.0  # between two renewals
log = Log("ade.worker")


class HttpRunLocks:
    def __init__(self, reach: ServerConnection, lease_ms: int) -> None:
        self._reach = reach
        self._client = reach.client
        self._lease_ms = lease_ms
        self._loop = asyncio.get_running_loop()
        self._with_tasks: dict[str, tuple[Sequence[LockItem], float]] = {}  # by run, before it begins
        self._of_tasks: dict[str, HeldLock] = {}  # by run; heartbeats renew them
        self._kept: dict[str, HeldLock] = {}  # by id; these are renewed here
        self._is_news = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        self.account = ""  # which the ids of its requests begin with
        self.on_lost: Callable[[Run], object] = lambda run: run.end(StopReason.LOCK_LOST)

    def expect(self, run_id: str, items: Sequence[LockItem], asked_at: float) -> None:
        """A run will begin with these, which were granted by a call that began at this moment."""
        self._with_tasks[run_id] = items, asked_at

    async def take(self, run: Run) -> Deferred | None:
        """What its task names came with it: no task is given out without."""
        items, asked_at = self._with_tasks.pop(run.id, ((), self._loop.time()))
        grant = request_of(run.task, ttl_ms=self._lease_ms)
        held = HeldLock(_granted(grant, items), asked_at, self._loop, is_told=False)
        self._of_tasks[run.id] = held
        run.locks, run.owes_locks = {held.id: held}, False
        enter_scope(run, asyncio.current_task())
        return None

    def beaten(self, asked_at: float) -> None:
        """By the lease thread: a heartbeat that began at this moment kept what tasks named."""
        for held in list(self._of_tasks.values()):
            held.extend_from_thread(held.grant, asked_at)

    async def take_more(self, run: Run, wanted: AcquireLock) -> AcquiredLock:
        """Raises LockTimeout, DeadlockVictim, TooManyLocks, InvalidLock, RunOver."""
        key = os.urandom(16).hex()
        lock_id = f"{self.account}:{key}"
        try:
            view, asked_at = await self._granted(run, wanted, key)
            if run.is_over:
                raise RunOver(f"run {run.id} of task {run.task.id} is over: it gets no more locks")
        except BaseException as error:
            if not isinstance(error, LockTimeout | DeadlockVictim):
                self._later(self._release(wanted.namespace, [lock_id]))
            raise
        held = HeldLock(_request(view), asked_at, self._loop)
        held.when_lost(partial(self.on_lost, run))
        if not run.locks:
            run.locks = {}
        run.locks[held.id] = self._kept[held.id] = held
        self._is_news.set()
        return AcquiredLock(held.id, wanted.namespace, view.items)

    async def _granted(self, run: Run, wanted: AcquireLock, key: str) -> tuple[RequestView, float]:
        """And when the call began after which it is surely held."""
        began = asked_at = self._loop.time()
        until = None if wanted.wait_ms is None else began + wanted.wait_ms / 1000
        view = await self._asked(run, partial(self._acquire, run, wanted, key, until))
        while view.state is LockState.WAITING:
            if until is not None and self._loop.time() >= until:
                self._later(self._release(wanted.namespace, [view.id]))
                raise LockTimeout(f"{', '.join(wish.resource for wish in wanted.wishes)} is locked by somebody else")
            asked_at = self._loop.time()
            view = await self._asked(run, partial(self._renew_one, view.id, wanted.namespace, self._left(until)))
        if self._loop.time() - asked_at > view.ttl_ms / 3000:  # it was granted somewhen in that time
            asked_at = self._loop.time()
            view = await self._asked(run, partial(self._renew_one, view.id, wanted.namespace, 0))
        return view, asked_at

    async def _acquire(self, run: Run, wanted: AcquireLock, key: str, until: float | None) -> RequestView:
        task, wait = run.task, self._left(until)
        return await self._client.acquire_locks(
            locks=list(wanted.wishes),
            id=key,
            owner=f"task:{task.id}",
            scope=wanted.scope,
            namespace=wanted.namespace,
            priority=task.priority,
            ttl=None if wanted.ttl_ms is None else wanted.ttl_ms / 1000,
            purpose=wanted.purpose or task.name,
            wait=wait,
            stay=wanted.wait_ms is None or wanted.wait_ms > LONGEST_WAIT_S * 1000,
        )

    async def _renew_one(self, lock_id: str, namespace: str, wait: float) -> RequestView:
        answer = await self._client.renew_locks(ids=[lock_id], namespace=namespace, wait=wait)
        return answer.renewed[0]

    def _left(self, until: float | None) -> float:
        """Of the time to wait, as much as one request may take."""
        if until is None:
            return _ROUND_S
        left = max(until - self._loop.time(), 0.0)
        return left if left <= LONGEST_WAIT_S else _ROUND_S

    async def _asked(self, run: Run, ask: Callable[[], Coroutine[Any, Any, RequestView]]) -> RequestView:
        return await self._reach.persist(ask, "lock", lambda: not run.is_ending, task_id=run.task.id)

    async def leave(self, run: Run, lock_id: str) -> None:
        held = run.locks.pop(lock_id, None)
        if held is not None:
            self._forget(held)
            await self._release(held.grant.namespace, [held.id])

    def end(self, run: Run, then: Callable[[], None]) -> None:
        """The run is over: what it asked for goes to those who wait. The server lets go of what its task named."""
        of_task = self._of_tasks.pop(run.id, None)
        self._with_tasks.pop(run.id, None)
        own = [held for held in run.locks.values() if held is not of_task]
        run.locks = {}
        for held in own:
            self._forget(held)
        self._later(self._end(own, then))

    async def _end(self, own: Sequence[HeldLock], then: Callable[[], None]) -> None:
        try:
            for held in own:
                await self._release(held.grant.namespace, [held.id])
        finally:
            then()

    async def work(self) -> None:
        """Renew what runs have asked for, until cancelled."""
        is_well = True
        while True:
            if not self._kept:
                self._is_news.clear()
                await self._is_news.wait()
            shortest_s = min((held.grant.ttl_ms for held in self._kept.values()), default=30_000) / 1000
            pause_s = min(max(shortest_s / 4, _SOONEST_S), _LATEST_S)
            await asyncio.sleep(pause_s if is_well else _SOONEST_S)
            is_well = True
            by_namespace: dict[str, list[HeldLock]] = {}
            for held in self._kept.values():
                by_namespace.setdefault(held.grant.namespace, []).append(held)
            for namespace, all_held in by_namespace.items():
                for start in range(0, len(all_held), _MOST_IDS):
                    is_well &= await self._renew(namespace, all_held[start : start + _MOST_IDS], pause_s)

    async def close(self) -> None:
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _renew(self, namespace: str, all_held: Sequence[HeldLock], within_s: float) -> bool:
        """Whether the server has answered. One that hangs is asked again before it costs a lock."""
        asked_at = self._loop.time()
        try:
            async with asyncio.timeout(within_s):
                answer = await self._reach.beats.renew_locks(ids=[held.id for held in all_held], namespace=namespace)
            standing = {view.id: view for view in answer.renewed}
        except LockLost:
            standing = {}
        except (AdeError, TimeoutError) as error:  # a lock knows by itself when it must be taken for lost
            log.warning("locks.not_renewed", error=str(error) or f"no answer within {within_s:g} s")
            return False
        for held in all_held:
            view = standing.get(held.id)
            if view is not None:
                held.extend(_request(view), asked_at)
            elif self._kept.pop(held.id, None) is not None:
                held.lose("the server has given it to others")
        return True

    async def _release(self, namespace: str, ids: list[str]) -> None:
        try:
            await self._client.release_locks(ids=ids, namespace=namespace)
        except AdeError as error:  # its lease runs out by itself
            log.warning("locks.not_released", ids=ids, error=str(error))

    def _forget(self, held: HeldLock) -> None:
        self._kept.pop(held.id, None)
        held.forget()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        job = self._loop.create_task(work)
        self._leaving.add(job)
        job.add_done_callback(self._leaving.discard)


def _granted(request: LockRequest, items: Sequence[LockItem]) -> LockRequest:
    return LockRequest(
        id=request.id,
        owner=request.owner,
        scope=request.scope,
        items=tuple(items),
        ttl_ms=request.ttl_ms,
        state=LockState.GRANTED,
    )


def _request(view: RequestView) -> LockRequest:
    """A grant as its holder knows it."""
    return LockRequest(
        id=view.id,
        namespace=view.namespace,
        owner=view.owner,
        scope=view.id,
        items=view.items,
        ttl_ms=view.ttl_ms,
        state=view.state,
    )
