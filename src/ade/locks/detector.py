"""Runs that wait for other tasks, and the search for deadlocks among all waits in the store.

Whoever waits for longer than a second looks for a deadlock that it is part of: every deadlock has such a waiter, in a
process that is alive. A deadlock must be found twice before it is resolved, because everything is read while others
write; a wait that is there both times, under the same ID, was there all the time in between.
"""

import asyncio
import os
import re
import time as system_time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Raw, Struct, structs

from ade.agents.model import AgentStatus, AgentUse
from ade.common.calls import either
from ade.errors import DeadlockVictim, StaleWrite, StoreError
from ade.events.model import Event
from ade.locks.deadlocks import Cycle, Resolution, WaitGraph, resolution_of
from ade.locks.knots import (
    AwaitingVictim,
    Clause,
    Waiter,
    WaitSnapshot,
    cycle_through,
    knots_in,
    request_node,
    resolution_of_knot,
    resource_text,
    stuck_in,
)
from ade.locks.model import DEFAULT_NAMESPACE, DEFAULT_PRIORITY, LockRequest, conflict
from ade.locks.requests import request_id
from ade.locks.rules import DEADLOCK
from ade.logs import Log
from ade.stores.ports import Stores, TaskQuery
from ade.stores.repository import Repository, StoredRecord
from ade.stores.resource_ports import DocumentWrite, LockQuery, LockStore
from ade.tasks.identifiers import owner_of
from ade.tasks.lifecycle import CLAIMABLE, Status
from ade.tasks.model import Definition, Task, Worker
from ade.worker.instrumentation import RunReference
from ade.worker.views import WorkersLiveness, WorkerView, serves, view_workers

log = Log("ade.locks")
MOST_REQUESTS = 10_000  # read at once
_MOST_NODES = 10_000  # a larger graph is searched in part; what was not read counts as able to go on
_MOST_RUNNING = 1_000  # of one name or worker
_RUNNING = frozenset({Status.RUNNING})
_RUN_SCOPE = re.compile(r"(?:(?P<owner>.+):)?(?P<task>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.\d+\.\d+")
T = TypeVar("T")


class TaskWait(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that waits for a task, as stored while it waits."""

    task_id: str  # of the run
    run_id: str
    awaits: str  # the ID of the other task
    expires_at: int
    victim: str | None = None  # set to end a deadlock: the cycle, in words


WAITS = Repository("task_wait", TaskWait, lambda one: one.expires_at)


# The snapshot: read from the nodes that someone asks about, as far as they wait for others.


class SnapshotReader:
    """Reads what a set of nodes waits for, and what that waits for, and so on."""

    def __init__(self, stores: Stores, requests: Mapping[str, LockRequest], waits: Mapping[str, TaskWait]) -> None:
        self._stores = stores
        self._requests = requests
        self._waits = {wait_id: wait for wait_id, wait in waits.items() if wait.victim is None}
        self._tasks: dict[str, Task | None] = {}
        self._running: dict[tuple[str, str], list[Task] | None] = {}
        self._workers: list[WorkerView] | None = None
        self._agents: dict[str, AgentUse] | None = None
        self._definitions: dict[str, Definition] | None = None
        self.found = WaitSnapshot(requests=dict(requests))

    async def read(self, roots: Iterable[str]) -> WaitSnapshot:
        """Return the snapshot of everything that these nodes lead to."""
        await self._resolve_scopes()
        frontier = list(dict.fromkeys(roots))
        while frontier and len(self.found.others) < _MOST_NODES:
            await self._fetch(node.removeprefix("task:") for node in frontier if node.startswith("task:"))
            following = dict[str, None]()
            for node in frontier:
                if node not in self.found.others:
                    following.update(dict.fromkeys(await self._expand(node)))
            frontier = [node for node in following if node not in self.found.others]
        return self.found

    async def _resolve_scopes(self) -> None:
        """Find out which requests belong to a task, as its current run or as the next one."""
        of_tasks = {one.id: match for one in self._requests.values() if (match := _RUN_SCOPE.fullmatch(one.scope))}
        await self._fetch(match["task"] for match in of_tasks.values())
        for one in self._requests.values():
            match = of_tasks.get(one.id)
            task = None if match is None else self._tasks.get(match["task"])
            is_own = task is not None and one.scope.endswith(request_id(task)) and _is_by(match, task)
            node = f"task:{task.id}" if is_own and task is not None else f"scope:{one.scope}"
            self.found.nodes[one.id] = node
            self.found.texts.setdefault(node, owner_text(one) if task is None or not is_own else task_text(task))

    async def _fetch(self, task_ids: Iterable[str]) -> None:
        new = [each for each in dict.fromkeys(task_ids) if each not in self._tasks]
        if new:
            self._tasks.update(zip(new, await self._stores.tasks.get(new), strict=True))

    async def _expand(self, node: str) -> list[str]:
        """Add what a node waits for; returns the nodes to go on with."""
        kind, _, name = node.partition(":")
        if kind == "task":
            clauses = await self._of_task(self._tasks.get(name))
        elif kind == "scope":
            clauses = self._of_waiter(node, DEFAULT_PRIORITY, 0)
        elif kind == "request":
            clauses = []  # its locks are added by the snapshot
        elif kind == "wait":
            awaited = self._waits[name].awaits
            await self._fetch([awaited])
            clauses = [Clause((f"task:{awaited}",), task_text(self._tasks.get(awaited), awaited))]
        else:
            clauses = await self._of_worker(name)
        if clauses is None:
            return []
        self.found.others[node] = clauses
        return [member for clause in clauses for member in clause.of] + self._lockers(node, kind, name)

    def _lockers(self, node: str, kind: str, name: str) -> list[str]:
        """Return who must let go before the lock requests of this node are granted: conservative, a few too many."""
        own = [self._requests[name]] if kind == "request" else []
        own += [one for one in self._own(node) if one.is_waiting and one.unattended]
        return [
            self.found.nodes[other.id]
            for one in own
            for item in one.items
            for other in self._by_resource().get((one.namespace, item.resource), ())
        ]

    def _by_resource(self) -> dict[tuple[str, str], list[LockRequest]]:
        if not hasattr(self, "_at"):
            self._at = defaultdict[tuple[str, str], list[LockRequest]](list)
            for one in self._requests.values():
                for resource in one.resources:
                    self._at[one.namespace, resource].append(one)
        return self._at

    def _own(self, node: str) -> list[LockRequest]:
        if not hasattr(self, "_of"):
            self._of = defaultdict[str, list[LockRequest]](list)
            for one in self._requests.values():
                self._of[self.found.nodes[one.id]].append(one)
        return self._of.get(node, [])

    def _of_waiter(self, node: str, priority: int, began_at: int, run_id: str | None = None) -> list[Clause] | None:
        """Return the wait of a run or program; None if it does not wait. Of several waits, any may let it go on."""
        attended = [one for one in self._own(node) if one.is_waiting and not one.unattended]
        awaiting = [
            wait_id
            for wait_id, wait in self._waits.items()
            if run_id is not None and wait.run_id == run_id and node == f"task:{wait.task_id}"
        ]
        if not attended and not awaiting:
            return None
        if attended:
            priority, began_at = max(one.priority for one in attended), began_at or max(one.seq for one in attended)
        self.found.waiters[node] = Waiter(priority, began_at)
        waits = [*(request_node(one.id) for one in attended), *(f"wait:{wait_id}" for wait_id in awaiting)]
        return [Clause(tuple(waits))]

    async def _of_task(self, task: Task | None) -> list[Clause] | None:
        if task is None:
            return None
        node = f"task:{task.id}"
        self.found.texts[node] = task_text(task)
        if task.status is Status.RUNNING:
            return self._of_waiter(node, task.priority, task.started_at or 0, task.run_id)
        if task.status not in CLAIMABLE:  # final, or people decide about it
            return None
        await self._fetch(task.depends_on if task.waiting_on else ())
        waiting_on = [other for each in task.depends_on if task.waiting_on and (other := self._tasks.get(each))]
        clauses = [Clause((f"task:{one.id}",), task_text(one)) for one in waiting_on if not one.is_final]
        clauses += self._of_declared_locks(task)
        clauses += await self._of_limits(task)
        return clauses + await self._of_workers(task)

    def _of_declared_locks(self, task: Task) -> list[Clause]:
        """Return what a task that has not requested its locks yet will wait for."""
        if any(one.id == request_id(task) for one in self._own(f"task:{task.id}")):
            return []  # granted, or the snapshot adds what the request waits for
        return [
            Clause((self.found.nodes[one.id],), f"the lock on {resource_text(one, spec.resource)}", is_held=True)
            for spec in task.locks
            for one in self._by_resource().get((DEFAULT_NAMESPACE, spec.resource), ())
            if one.is_granted and (mode := one.mode_of(spec.resource)) and conflict(mode, spec.mode)
        ]

    async def _of_limits(self, task: Task) -> list[Clause]:
        """Return the concurrency limits, by name and by key, that keep a task from being claimed."""
        if self._definitions is None:
            self._definitions = {each.name: each for each in await self._stores.workers.definitions()}
        definition, clauses = self._definitions.get(task.name), list[Clause | None]()
        if definition is not None and definition.concurrency is not None:
            running = await self._runs(name=task.name)
            limit = definition.concurrency
            clauses.append(_place(running, limit, f"the concurrency limit of {task.name!r} ({limit})"))
        if definition is not None and definition.concurrency_per_key is not None and task.concurrency_key is not None:
            ids = await self._stores.queues.running_by_key(task.name, task.concurrency_key)
            await self._fetch(ids)
            running, limit = [each for one in ids if (each := self._tasks[one])], definition.concurrency_per_key
            what = f"the concurrency limit of {task.name!r} with the key {task.concurrency_key!r} ({limit})"
            clauses.append(_place(running, limit, what))
        return [clause for clause in clauses if clause is not None]

    async def _runs(self, *, name: str | None = None, worker: str | None = None) -> list[Task] | None:
        """Return the running tasks of a name or worker; None if there are too many to read."""
        key = (name or "", worker or "")
        if key not in self._running:
            query = TaskQuery(statuses=_RUNNING, name=name, worker_id=worker, limit=_MOST_RUNNING)
            page = await self._stores.tasks.find(query)
            self._running[key] = page.tasks if page.next is None else None
            self._tasks.update((task.id, task) for task in page.tasks)
        return self._running[key]

    async def _of_workers(self, task: Task) -> list[Clause]:
        """Return the wait for any worker that could claim the task; none if there is no such worker at all."""
        if self._workers is None:
            self._workers = await view_workers(self._stores)
        able = [each.worker for each in self._workers if each.liveness is WorkersLiveness.WORKING]
        willing = [worker.id for worker in able if serves(worker, task)]
        return [Clause(tuple(f"worker:{worker_id}" for worker_id in willing))] if willing else []

    async def _of_worker(self, worker_id: str) -> list[Clause] | None:
        """Return what a worker waits for before it can claim: a place of its own, and one of its agent."""
        worker = next((each.worker for each in self._workers or () if each.worker.id == worker_id), None)
        if worker is None:
            return None
        what = f"a place of worker {worker_id} ({worker.concurrency})"
        clauses = [_place(await self._runs(worker=worker_id), worker.concurrency, what), await self._of_agent(worker)]
        return [clause for clause in clauses if clause is not None]

    async def _of_agent(self, worker: Worker) -> Clause | None:
        if worker.agent is None:
            return None
        if self._agents is None:
            self._agents = {use.agent.id: use for use in await self._stores.agents.list_agents()}
        use = self._agents.get(worker.agent)
        if use is None or use.agent.status is not AgentStatus.ACTIVE or use.used < use.agent.max_tasks:
            return None
        tasks = dict[str, Task]()
        for each in self._workers or ():
            if each.worker.agent == worker.agent:
                tasks |= {task.run_id or "": task for task in await self._runs(worker=each.worker.id) or ()}
        held = [tasks[run_id] for run_id in use.leases if run_id in tasks]
        if len(held) < use.used:  # some units belong to claims in progress
            return None
        return _place(held, use.agent.max_tasks, f"the capacity of agent {worker.agent} ({use.agent.max_tasks})")


def _is_by(match: "re.Match[str] | None", task: Task) -> bool:
    """Whether the request comes from a worker that runs the task. The account of one behind HTTP is in the scope."""
    if match is None or match["owner"] is None:
        return match is not None
    return owner_of(task.worker_id or "") == match["owner"].partition("/")[0]


def _place(running: Sequence[Task] | None, limit: int, what: str) -> Clause | None:
    """Return the wait for one of the places that these runs have; None if one is free, or they are not known."""
    if running is None or len(running) < limit:
        return None
    nodes = tuple(f"task:{task.id}" for task in running)
    return Clause(nodes, what, needed=len(running) - limit + 1, is_held=True)


def task_text(task: Task | None, task_id: str = "") -> str:
    """Return a task for people: its ID, name, and author."""
    if task is None:
        return f"task {task_id}"
    author = f", by {task.author_id}" if task.author_id else ""
    return f"task {task.id} ({task.name}{author})"


def owner_text(request: LockRequest) -> str:
    """Return the owner of a lock request, with its purpose if it has one: that of a task is its name."""
    return f"{request.owner} ({request.purpose})" if request.purpose else request.owner


async def read_requests(store: LockStore, namespaces: Iterable[str] = ()) -> dict[str, LockRequest]:
    """Read the lock requests of all namespaces; if these are too many, those of the given ones."""
    found = await store.find(LockQuery(limit=MOST_REQUESTS))
    if len(found) >= MOST_REQUESTS:
        for namespace in sorted(set(namespaces)):
            found += await store.find(LockQuery(namespace=namespace, limit=MOST_REQUESTS))
    return {one.id: one for one in found}


async def explain_stuck(stores: Stores, *, task_ids: Sequence[str] = (), request_ids: Sequence[str] = ()) -> list[str]:
    """Return the deadlock that one of these tasks or lock requests is in or waits for, as sentences; empty if none."""
    requests = await read_requests(stores.locks)
    waits = {wait_id: stored.record for wait_id, stored in (await WAITS.all(stores)).items()}
    reader = SnapshotReader(stores, requests, waits)
    roots = [f"task:{each}" for each in task_ids] + [request_node(each) for each in request_ids if each in requests]
    found = await reader.read(roots)
    roots += [found.nodes[each] for each in request_ids if each in requests]
    graph = (await reader.read(roots)).waits()
    stuck = stuck_in(graph)
    steps = next((steps for root in roots if (steps := cycle_through(root, graph, stuck))), [])
    return found.sentences(steps)


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
        said = [
            f"{owner_text(requests[edge.waiter])} waits for the lock on"
            f" {resource_text(requests[edge.waiter], edge.resource)},"
            f" {'held by' if edge.is_hard else 'behind'} {owner_text(requests[edge.blocker])}"
            for edge in ring
        ]
        namespace = requests[cure.request_id].namespace
        if await self._locks.cure(namespace, cure, tuple(edge.scope for edge in ring)) is not None:
            log.warning("lock.deadlock", cycle="; ".join(said), cure=str(cure))

    async def _open_knots(
        self, stores: Stores, requests: dict[str, LockRequest], waiting: Sequence[LockRequest], roots: list[str]
    ) -> bool:
        stored = await WAITS.all(stores)
        if not stored and not any(_RUN_SCOPE.fullmatch(one.scope) for one in requests.values()):
            return False  # nobody but programs waits, and only for locks
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
                said = found.sentences(cycle_through(node, graph, stuck_in(graph)))
                if await self._resolve(stores, cure, requests, stored, tuple(said)):
                    log.warning("lock.deadlock", cycle="; ".join(said), cure=str(cure))
                    del self._knots[knot]
        return bool(knots)

    async def _resolve(
        self,
        stores: Stores,
        cure: Resolution | AwaitingVictim,
        requests: Mapping[str, LockRequest],
        stored: Mapping[str, StoredRecord[TaskWait]],
        said: tuple[str, ...],
    ) -> bool:
        """Write the resolution. Returns False if another process resolves one now, or the wait has changed."""
        now = stores.clock.now()
        lease = DocumentWrite(
            kind="deadlock", id="resolving", body=Raw(b"{}"), expires_at=now + _RESOLVING_MS, is_quiet=True
        )
        try:
            if not isinstance(cure, AwaitingVictim):
                await stores.documents.write([lease])
                return await self._locks.cure(requests[cure.request_id].namespace, cure, said) is not None
            wait = structs.replace(stored[cure.wait_id].record, victim="; ".join(said))
            marked = structs.replace(WAITS.put(cure.wait_id, wait, seen=stored[cure.wait_id].version), is_quiet=True)
            about: dict[str, object] = {"task_id": wait.task_id, "run_id": wait.run_id, "awaits": wait.awaits}
            event = Event(type=DEADLOCK, at=now, payload={**about, "cycle": list(said)})
            await stores.documents.write([lease, marked], [event])
        except StaleWrite:
            return False
        self.victims[cure.wait_id] = "; ".join(said)
        return True


def _cured_node(
    found: WaitSnapshot, cure: Resolution | AwaitingVictim, stored: Mapping[str, StoredRecord[TaskWait]]
) -> str:
    """Return the node whose wait or grant is changed: the cycle is told from there."""
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
            raise DeadlockVictim(f"task {task_id} waits for its own end, which would never come")
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
            for wait_id, said in list(self._detector.victims.items()):
                self._abort(wait_id, said)

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

    def _abort(self, wait_id: str, said: str) -> None:
        self._detector.victims.pop(wait_id, None)
        one = self._awaiting.get(wait_id)
        if one is not None and not one.aborted.done():
            one.aborted.set_result(said)

    async def _store(self, due: Sequence[_Awaiting]) -> None:
        due = [one for one in due if not one.aborted.done()]
        if not due:
            return
        expires_at = self._stores.clock.now() + _LEASE_MS
        writes = [
            structs.replace(
                WAITS.put(
                    one.id,
                    TaskWait(task_id=one.run.task_id, run_id=one.run.run_id, awaits=one.task_id, expires_at=expires_at),
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
