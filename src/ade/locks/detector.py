"""Runs that wait for other tasks, and the search for deadlocks among all waits in the store.

A run or program that waits for longer than a second searches for a deadlock that it is part of: every deadlock has such
a waiter, in a live process. A deadlock must be found twice before it is resolved, because everything is read while
others write; a wait that exists both times, under the same ID, also existed in between.
"""

import asyncio
import os
import time as system_time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Raw, structs

from ade.common.calls import either
from ade.errors import DeadlockVictim, StaleWrite, StoreError
from ade.events.model import Event
from ade.locks.deadlocks import Cycle, Resolution, WaitGraph, resolution_of
from ade.locks.knots import (
    AwaitingVictim,
    WaitSnapshot,
    cycle_through,
    knots_in,
    resolution_of_knot,
    resource_text,
    stuck_in,
)
from ade.locks.model import LockRequest
from ade.locks.rules import DEADLOCK
from ade.locks.views import RUN_SCOPE, WAITS, RunWait, SnapshotReader, owner_text, read_requests
from ade.logs import Log
from ade.stores.ports import Stores
from ade.stores.repository import StoredRecord
from ade.stores.resource_ports import DocumentWrite, LockStore
from ade.worker.instrumentation import RunReference

log = Log("ade.locks")
T = TypeVar("T")


# Detection.


_CONFIRM_AFTER_S = 0.2
_RESOLVING_MS = 1_000  # one process at a time resolves, so that no deadlock gets two victims


class DeadlockDetector:
    """Finds and resolves the deadlocks that the waiters of one event loop are part of.

    Without `stores`, only waits for locks are searched.
    """

    def __init__(
        self,
        locks: LockStore,
        stores: Stores | None = None,
        *,
        time: Callable[[], float] = system_time.monotonic,
    ) -> None:
        self._locks = locks
        self._stores = stores
        self._time = time
        self._rings: dict[str, frozenset[tuple[str, str]]] = {}  # scope -> the cycle it was in at the last look
        self._knots: dict[frozenset[str], float] = {}  # knots at the last look, and when they were first seen
        self.victims: dict[str, str] = {}  # waits for tasks that were chosen here: ID -> the cycle

    async def look(self, waiting: Sequence[LockRequest] = (), runs: Sequence[RunReference] = ()) -> bool:
        """Resolve deadlocks that were also there at the last look.

        Returns True if new ones were seen, or if resolving one may have exposed others: look again soon.
        """
        requests = await read_requests(self._locks, [one.namespace for one in waiting])
        opened, is_news = await self._open_rings({one.scope for one in waiting}, requests)
        if self._stores is None or opened:
            return is_news
        roots = [f"task:{run.task_id}" for run in runs]
        return await self._open_knots(self._stores, requests, waiting, roots) or is_news

    async def _open_rings(self, scopes: Iterable[str], requests: dict[str, LockRequest]) -> tuple[bool, bool]:
        """Resolve cycles of locks alone. Returns whether some were resolved, and whether to look again soon."""
        graph = WaitGraph(requests.values())
        suspected, opened = dict[str, frozenset[tuple[str, str]]](), set[str]()
        for scope in scopes:
            ring = graph.ring_of(scope)
            if ring is None or not opened.isdisjoint(edge.scope for edge in ring):  # resolved scopes have moved
                continue
            seen = frozenset((edge.waiter, edge.blocker) for edge in ring)
            if self._rings.get(scope) == seen:
                await self._open(ring, resolution_of(ring, requests), requests)
                opened.update(edge.scope for edge in ring)
            else:
                suspected[scope] = seen
        self._rings = suspected
        return bool(opened), bool(suspected or opened)

    async def _open(self, ring: Cycle, cure: Resolution, requests: Mapping[str, LockRequest]) -> None:
        cycle = [
            f"{owner_text(requests[edge.waiter])} waits for the lock on"
            f" {resource_text(requests[edge.waiter], edge.resource)},"
            f" {'held by' if edge.is_hard else 'behind'} {owner_text(requests[edge.blocker])}"
            for edge in ring
        ]
        namespace = requests[cure.request_id].namespace
        if await self._locks.cure(namespace, cure, tuple(edge.scope for edge in ring)) is not None:
            log.warning("lock.deadlock", cycle="; ".join(cycle), cure=str(cure))

    async def _open_knots(
        self, stores: Stores, requests: dict[str, LockRequest], waiting: Sequence[LockRequest], roots: list[str]
    ) -> bool:
        stored = await WAITS.all(stores)
        if not stored and not any(RUN_SCOPE.fullmatch(one.scope) for one in requests.values()):
            return False  # only programs wait, and only for locks
        reader = SnapshotReader(stores, requests, {wait_id: one.record for wait_id, one in stored.items()})
        await reader.read(roots)
        roots = [*roots, *(reader.found.nodes[one.id] for one in waiting if one.id in requests)]
        found = await reader.read(roots)
        graph = found.waits()
        now, own = self._time(), set(roots)
        own -= {found.nodes[one.id] for one in waiting if one.scope in self._rings and one.id in requests}
        knots = [knot for knot in knots_in(graph, stuck_in(graph)) if knot & own]
        before, self._knots = self._knots, {knot: self._knots.get(knot, now) for knot in knots}
        for knot in knots:
            if now - before.get(knot, now) >= _CONFIRM_AFTER_S:
                cure = resolution_of_knot(found, knot)
                if cure is None:
                    continue
                node = _cured_node(found, cure, stored)
                cycle = found.sentences(cycle_through(node, graph, stuck_in(graph)))
                if await self._resolve(stores, cure, requests, stored, tuple(cycle)):
                    log.warning("lock.deadlock", cycle="; ".join(cycle), cure=str(cure))
                    del self._knots[knot]
        return bool(knots)

    async def _resolve(
        self,
        stores: Stores,
        cure: Resolution | AwaitingVictim,
        requests: Mapping[str, LockRequest],
        stored: Mapping[str, StoredRecord[RunWait]],
        cycle: tuple[str, ...],
    ) -> bool:
        """Write the resolution. Returns False if another process resolves one now, or the wait has changed."""
        now = stores.clock.now()
        lease = DocumentWrite(
            kind="deadlock", id="resolving", body=Raw(b"{}"), expires_at=now + _RESOLVING_MS, is_quiet=True
        )
        try:
            if not isinstance(cure, AwaitingVictim):
                await stores.documents.write([lease])
                return await self._locks.cure(requests[cure.request_id].namespace, cure, cycle) is not None
            wait = structs.replace(stored[cure.wait_id].record, victim="; ".join(cycle))
            marked = structs.replace(WAITS.put(cure.wait_id, wait, seen=stored[cure.wait_id].version), is_quiet=True)
            about: dict[str, object] = {"task_id": wait.task_id, "run_id": wait.run_id, "awaits": wait.awaits}
            event = Event(type=DEADLOCK, at=now, payload={**about, "cycle": list(cycle)})
            await stores.documents.write([lease, marked], [event])
        except StaleWrite:
            return False
        self.victims[cure.wait_id] = "; ".join(cycle)
        return True


def _cured_node(
    found: WaitSnapshot, cure: Resolution | AwaitingVictim, stored: Mapping[str, StoredRecord[RunWait]]
) -> str:
    """Return the node whose wait or grant is changed: the description of the cycle starts there."""
    if isinstance(cure, AwaitingVictim):
        return f"task:{stored[cure.wait_id].record.task_id}"
    return found.nodes[cure.request_id]


# Waits of runs for other tasks. One asyncio task stores and renews those that last longer than a second.


_ANNOUNCE_S = 1.0  # most results are there earlier, and cost nothing
_RENEW_S, _LEASE_MS = 5.0, 15_000
_LOOK_S, _CONFIRM_S = 5.0, 0.25
_POLL_S = 1.0


class _Awaiting:
    """One wait of a run."""

    def __init__(self, run: RunReference, task_id: str, now: float) -> None:
        self.run = run
        self.task_id = task_id
        self.id = f"{run.run_id}:{os.urandom(6).hex()}"
        self.write_at = self.look_at = now + _ANNOUNCE_S
        self.version: int | None = None  # None: not stored yet
        self.aborted: asyncio.Future[str] = asyncio.get_running_loop().create_future()


class TaskWaits:
    """The runs on one event loop that wait for tasks."""

    def __init__(
        self,
        stores: Stores,
        detector: DeadlockDetector,
        *,
        is_on: Callable[[], Awaitable[bool]],
        time: Callable[[], float] | None = None,
        rest: Callable[[asyncio.Event, float], Awaitable[None]] = either,
    ) -> None:
        self._stores = stores
        self._detector = detector
        self._is_on = is_on
        self._loop = asyncio.get_running_loop()
        self._time = time or self._loop.time
        self._rest = rest
        self._news = asyncio.Event()
        self._awaiting: dict[str, _Awaiting] = {}
        self._job: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def wait(self, run: RunReference, task_id: str, ending: Awaitable[T]) -> T:
        """Return what `ending` returns, the end of the task. Raises DeadlockVictim."""
        if task_id == run.task_id:
            close = getattr(ending, "close", None)
            if close is not None:
                close()
            raise DeadlockVictim(f"task {task_id} waits for its own result, so it would wait indefinitely")
        one = _Awaiting(run, task_id, self._time())
        self._awaiting[one.id] = one
        self._news.set()
        if self._job is None or self._job.done():
            self._job = self._loop.create_task(self._work(), name="ade-task-waits")
        job = asyncio.ensure_future(ending)
        try:
            either_ends: set[asyncio.Future[Any]] = {job, one.aborted}
            await asyncio.wait(either_ends, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            raise DeadlockVictim(
                f"the wait for task {task_id} was part of a deadlock: {one.aborted.result()}."
                " Release what this run holds, and try again"
            )
        finally:
            self._awaiting.pop(one.id, None)
            if not job.done():
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)
            if one.version is not None:
                self._leave_later(one)

    async def close(self) -> None:
        """Stop looking, and withdraw what was stored."""
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def _leave_later(self, one: _Awaiting) -> None:
        leaving = self._loop.create_task(self._leave(one))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def _leave(self, one: _Awaiting) -> None:
        try:
            await self._stores.documents.write([structs.replace(WAITS.remove(one.id), is_quiet=True)])
        except StoreError as error:  # it expires on its own
            log.warning("task_wait.not_removed", run_id=one.run.run_id, error=str(error))

    async def _work(self) -> None:
        while self._awaiting:
            self._news.clear()
            try:
                await self._turn()
            except (StoreError, StaleWrite) as error:  # the store is away, or a wait was aborted just now
                log.debug("task_wait.not_stored", waiting=len(self._awaiting), error=str(error))
            if self._awaiting:
                await self._rest(self._news, self._pause())

    def _pause(self) -> float:
        soonest = min(min(one.write_at, one.look_at) for one in self._awaiting.values()) - self._time()
        polls = _POLL_S if any(one.version is not None for one in self._awaiting.values()) else soonest
        return max(min(soonest, polls), 0.05)

    async def _turn(self) -> None:
        now = self._time()
        if not any(now >= one.write_at or one.version is not None for one in self._awaiting.values()):
            return
        if not await self._is_on():  # the feature can be disabled at run time
            for one in self._awaiting.values():
                one.write_at = one.look_at = now + _LOOK_S
            return
        await self._poll()
        # All waits of a run are stored with its first one: it is stuck only if none of them can end.
        long = {one.run.run_id for one in self._awaiting.values() if now >= one.write_at or one.version is not None}
        new = [one for one in self._awaiting.values() if one.run.run_id in long and one.version is None]
        await self._store([*new, *(one for one in self._awaiting.values() if one not in new and now >= one.write_at)])
        if any(now >= one.look_at for one in self._awaiting.values()):
            stored = [one for one in self._awaiting.values() if one.version is not None]
            is_news = await self._detector.look(runs=[one.run for one in stored])
            for one in stored:
                one.look_at = now + (_CONFIRM_S if is_news else _LOOK_S)
            for wait_id, cycle in list(self._detector.victims.items()):
                self._abort(wait_id, cycle)

    async def _poll(self) -> None:
        """Read what was stored: another process may have chosen a victim, or the store may have lost it."""
        stored = [one for one in self._awaiting.values() if one.version is not None]
        if not stored:
            return
        for one, found in zip(stored, await WAITS.each(self._stores, [one.id for one in stored]), strict=True):
            one.version = 0 if found is None else found.version
            if found is None:
                one.write_at = self._time()
            elif found.record.victim is not None:
                self._abort(one.id, found.record.victim)

    def _abort(self, wait_id: str, cycle: str) -> None:
        self._detector.victims.pop(wait_id, None)
        one = self._awaiting.get(wait_id)
        if one is not None and not one.aborted.done():
            one.aborted.set_result(cycle)

    async def _store(self, due: Sequence[_Awaiting]) -> None:
        due = [one for one in due if not one.aborted.done()]
        if not due:
            return
        expires_at = self._stores.clock.now() + _LEASE_MS
        writes = [
            structs.replace(
                WAITS.put(
                    one.id,
                    RunWait(task_id=one.run.task_id, run_id=one.run.run_id, awaits=one.task_id, expires_at=expires_at),
                    seen=one.version or 0,
                ),
                is_quiet=True,
            )
            for one in due
        ]
        await self._stores.documents.write(writes)
        now = self._time()
        for one in due:
            one.version = (one.version or 0) + 1  # the next poll reads the exact one
            one.write_at = now + _RENEW_S
            if one.id not in self._awaiting:  # it ended during the write
                self._leave_later(one)
