"""Views of locks: holders and waiters of resources, the wait-for graph, and what everyone waits for."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec import Struct, structs

from ade.agents.model import AgentStatus, AgentUse
from ade.locks.deadlocks import Cycle, Edge, WaitGraph, nearest_edges, scopes_in_cycles
from ade.locks.knots import Clause, Waiter, WaitSnapshot, cycle_through, request_node, resource_text, stuck_in
from ade.locks.model import (
    DEFAULT_NAMESPACE,
    DEFAULT_PRIORITY,
    LockItem,
    LockMode,
    LockRequest,
    LockState,
    conflict,
    kind_of,
    place_in_line,
)
from ade.locks.requests import request_id
from ade.server.redaction import mark_private
from ade.stores.ports import Stores, TaskQuery
from ade.stores.repository import Repository
from ade.stores.resource_ports import LockQuery, LockStore
from ade.tasks.identifiers import owner_of
from ade.tasks.lifecycle import CLAIMABLE, Status
from ade.tasks.model import Definition, Task, Worker
from ade.worker.views import WorkersLiveness, WorkerView, serves, view_workers

MOST_REQUESTS = 10_000  # read at once
_MOST_IN_RINGS = 100  # scopes whose cycles are searched
_MOST_NODES = 10_000  # a larger graph is searched in part; what was not read counts as able to go on
_MOST_RUNNING = 1_000  # of one name or worker
_RUNNING = frozenset({Status.RUNNING})
RUN_SCOPE = re.compile(r"(?:(?P<owner>.+):)?(?P<task>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.\d+\.\d+")

# Here, before the JSON form of a graph is compiled.
mark_private(LockRequest, "wait_until", "rank", "unattended", "account")


class LockStanding(Struct, frozen=True, kw_only=True):
    """One request, as it stands to one resource."""

    request_id: str
    owner: str
    scope: str
    mode: LockMode
    granted: bool
    priority: int
    since: int  # when it was granted or, if waiting, requested
    token: int | None = None
    expires_in_ms: int = 0  # unless renewed; negative: expired, but not removed yet
    heartbeats: int = 0
    purpose: str | None = None
    task_id: str | None = None


class LockView(Struct, frozen=True, kw_only=True):
    """A resource that somebody holds or waits for."""

    namespace: str
    resource: str
    holders: list[LockStanding]
    waiters: list[LockStanding]
    deadlock: list[str] = []  # who waits for what in a deadlock that a waiter is in; only if one resource was asked for


class RequestView(Struct, frozen=True, kw_only=True):
    """A request as its owner sees it."""

    id: str
    namespace: str
    owner: str
    state: LockState
    items: tuple[LockItem, ...]  # with their tokens once granted
    priority: int
    ttl_ms: int
    expires_in_ms: int  # unless renewed: the lock, or the position in the wait queue
    asked_at: int
    purpose: str | None = None
    granted_at: int | None = None
    position: int | None = None  # in the wait queue; 1 is next


class LockGraph(Struct, frozen=True, kw_only=True):
    """Who cannot go on before whom, the rings among them, and the requests that both are about."""

    requests: dict[str, LockRequest]
    edges: list[Edge]
    rings: list[Cycle]


async def view_locks(
    stores: Stores,
    *,
    namespace: str | None = None,
    owner: str | None = None,
    resource: str | None = None,
    kind: str | None = None,
) -> list[LockView]:
    """Return every locked resource, sorted by namespace and name; `kind` is the part of the name before the colon.

    With an owner: the resources it holds or waits for, with all their holders and waiters. A resource needs its
    namespace.
    """
    query = LockQuery(namespace=namespace, owner=owner, resource=resource, kind=kind, limit=MOST_REQUESTS)
    by_resource: dict[tuple[str, str], list[LockRequest]] = {}
    for request in await stores.locks.find(query):
        for name in request.resources if request.is_granted or request.is_waiting else ():
            if resource in (None, name) and kind in (None, kind_of(name)):
                by_resource.setdefault((request.namespace, name), []).append(request)
    views = []
    for (space, name), known in sorted(by_resource.items()):
        if owner is not None:
            query = LockQuery(namespace=space, resource=name, limit=MOST_REQUESTS)
            known = await stores.locks.find(query)
        views.append(_view(space, name, known, stores.clock.steady()))
    if resource is not None and any(one.waiters for one in views):
        waiting = [each.request_id for one in views for each in one.waiters]
        cycle = await explain_stuck(stores, request_ids=waiting)
        views = [structs.replace(one, deadlock=cycle) for one in views]
    return views


def _view(namespace: str, resource: str, known: list[LockRequest], steady: int) -> LockView:
    known = sorted((one for one in known if resource in one.resources), key=place_in_line)
    holders = [standing(one, resource, steady) for one in known if one.is_granted]
    waiters = [standing(one, resource, steady) for one in known if not one.is_granted]
    return LockView(namespace=namespace, resource=resource, holders=holders, waiters=waiters)


async def view_request(stores: Stores, request: LockRequest) -> RequestView:
    """Return a request as its owner sees it."""
    return RequestView(
        id=request.id,
        namespace=request.namespace,
        owner=request.owner,
        state=request.state,
        items=request.items,
        priority=request.priority,
        ttl_ms=request.ttl_ms,
        expires_in_ms=max(request.lease_until - stores.clock.steady(), 0),
        asked_at=request.asked_at,
        purpose=request.purpose,
        granted_at=request.granted_at,
        position=await _position(stores, request) if request.is_waiting else None,
    )


async def _position(stores: Stores, request: LockRequest) -> int:
    """Return the last of its positions in the wait queues of its resources."""
    ahead = 0
    for resource in request.resources:
        query = LockQuery(namespace=request.namespace, resource=resource, limit=MOST_REQUESTS)
        line = (one for one in await stores.locks.find(query) if one.is_waiting)
        ahead = max(ahead, sum(place_in_line(one) < place_in_line(request) for one in line))
    return ahead + 1


async def lock_graph(stores: Stores, namespace: str) -> LockGraph:
    """Return the wait-for graph of a namespace: of all holders and waiters in it.

    Their waits in other namespaces, waits of others for them, and whole cycles are included, because a deadlock can
    span namespaces.
    """
    found = (await read_requests(stores.locks, [namespace])).values()
    scopes = {one.scope for one in found if one.namespace == namespace}
    waits, edges = WaitGraph(found), nearest_edges(found)
    rings: dict[frozenset[str], Cycle] = {}
    for scope in [each for each in scopes_in_cycles(edges) if each in scopes][:_MOST_IN_RINGS]:
        ring = waits.ring_of(scope)
        if ring is not None:
            rings.setdefault(frozenset(edge.scope for edge in ring), ring)
    edges = [edge for edge in edges if edge.scope in scopes or edge.blocking_scope in scopes]
    edges = list(dict.fromkeys((*edges, *chain(*rings.values()))))  # a cycle may use an omitted transitive edge
    named = {end for edge in edges for end in (edge.waiter, edge.blocker)}
    requests = {one.id: one for one in found if one.id in named}
    return LockGraph(requests=requests, edges=edges, rings=list(rings.values()))


def standing(request: LockRequest, resource: str, steady: int) -> LockStanding:
    """Return the relation of a request to one of its resources."""
    item = next(item for item in request.items if item.resource == resource)
    return LockStanding(
        request_id=request.id,
        owner=request.owner,
        scope=request.scope,
        mode=item.mode,
        granted=request.is_granted,
        priority=request.priority,
        since=request.granted_at or request.asked_at,
        token=item.token or None,
        expires_in_ms=request.lease_until - steady,
        heartbeats=request.heartbeats,
        purpose=request.purpose,
        task_id=request.task_id,
    )


class LocksRenewed(Struct, frozen=True, kw_only=True):
    """What is left of the locks and places in line, and which are gone."""

    renewed: list[RequestView]
    lost: list[str] = []
    gave_way: list[str] = []  # a subset of lost: deadlock victims


class LocksWatched(Struct, frozen=True, kw_only=True):
    """The lock requests, and the runs, that have lost their locks; empty if all were there the whole time."""

    lost: list[str] = []
    lost_runs: list[str] = []


class LocksReleased(Struct, frozen=True, kw_only=True):
    """The lock requests that were released, and those that had already been lost."""

    released: list[str]
    lost: list[str] = []  # already gone before


class ForceReleased(Struct, frozen=True, kw_only=True):
    """The lock request that an operator released."""

    request_id: str
    owner: str
    resources: tuple[str, ...]


# What everyone waits for: read from the nodes that someone asks about, as far as they wait for others.


class RunWait(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that waits for a task, as stored while it waits."""

    task_id: str  # of the run
    run_id: str
    awaits: str  # the ID of the other task
    expires_at: int
    victim: str | None = None  # set to end a deadlock: the cycle, in words


WAITS = Repository("task_wait", RunWait, lambda one: one.expires_at)


class SnapshotReader:
    """Reads what a set of nodes waits for, and what that waits for, and so on."""

    def __init__(self, stores: Stores, requests: Mapping[str, LockRequest], waits: Mapping[str, RunWait]) -> None:
        self._stores = stores
        self._requests = requests
        self._waits = {wait_id: wait for wait_id, wait in waits.items() if wait.victim is None}
        self._of_run = defaultdict[tuple[str, str], list[str]](list)  # task and run -> its waits
        for wait_id, wait in self._waits.items():
            self._of_run[wait.task_id, wait.run_id].append(wait_id)
        self._of_node = defaultdict[str, list[LockRequest]](list)
        self._granted = defaultdict[str, list[LockRequest]](list)  # by resource, in the default namespace
        self._blockers = defaultdict[str, list[str]](list)
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
        if self.found.nodes:
            return
        for edge in nearest_edges(self._requests.values()):
            self._blockers[edge.waiter].append(edge.blocker)
        of_tasks = {one.id: match for one in self._requests.values() if (match := RUN_SCOPE.fullmatch(one.scope))}
        await self._fetch(match["task"] for match in of_tasks.values())
        for one in self._requests.values():
            match = of_tasks.get(one.id)
            task = None if match is None else self._tasks.get(match["task"])
            is_own = task is not None and one.scope.endswith(request_id(task)) and _is_by(match, task)
            node = f"task:{task.id}" if is_own and task is not None else f"scope:{one.scope}"
            self.found.nodes[one.id] = node
            self._of_node[node].append(one)
            for resource in one.resources if one.is_granted and one.namespace == DEFAULT_NAMESPACE else ():
                self._granted[resource].append(one)
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
        """Return who must let go, or go first, before the lock requests of this node are granted."""
        own = [name] if kind == "request" else []
        own += [one.id for one in self._of_node[node] if one.is_waiting and one.unattended]
        return [self.found.nodes[blocker] for request in own for blocker in self._blockers[request]]

    def _of_waiter(self, node: str, priority: int, began_at: int, run_id: str | None = None) -> list[Clause] | None:
        """Return the wait of a run or program; None if it does not wait. Of several waits, any may let it go on."""
        attended = [one for one in self._of_node[node] if one.is_waiting and not one.unattended]
        awaiting = [] if run_id is None else self._of_run[node.removeprefix("task:"), run_id]
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
        if any(one.id == request_id(task) for one in self._of_node[f"task:{task.id}"]):
            return []  # granted, or the snapshot adds what the request waits for
        return [
            Clause((self.found.nodes[one.id],), f"the lock on {resource_text(one, spec.resource)}", is_held=True)
            for spec in task.locks
            for one in self._granted[spec.resource]
            if (mode := one.mode_of(spec.resource)) and conflict(mode, spec.mode)
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
