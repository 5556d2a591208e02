"""Views of locks: holders and waiters of resources, a single request, and the wait-for graph."""

from itertools import chain

from msgspec import Struct, structs

from ade.locks.deadlocks import Cycle, Edge, WaitGraph, nearest_edges, scopes_in_cycles
from ade.locks.detector import explain_stuck
from ade.locks.model import LockItem, LockMode, LockRequest, LockState, kind_of, place_in_line
from ade.server.redaction import mark_private
from ade.stores.ports import Stores
from ade.stores.resource_ports import LockQuery

MOST_REQUESTS = 10_000
_MOST_IN_RINGS = 100  # scopes whose cycles are searched

mark_private(
    LockRequest, "wait_until", "rank", "unattended", "account"
)  # here, before the JSON form of a graph is compiled


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
    """Return the wait-for graph of a namespace."""
    found = await stores.locks.find(LockQuery(namespace=namespace, limit=MOST_REQUESTS))
    waits, edges = WaitGraph(found), nearest_edges(found)
    rings: dict[frozenset[str], Cycle] = {}
    for scope in scopes_in_cycles(edges)[:_MOST_IN_RINGS]:
        ring = waits.ring_of(scope)
        if ring is not None:
            rings.setdefault(frozenset(edge.scope for edge in ring), ring)
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
