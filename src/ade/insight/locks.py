"""Who holds what, who waits for it, and who waits for whom."""

from msgspec import Struct

from ade.core.locks.deadlocks import Edge, Ring, edges_of, find_ring
from ade.core.locks.records import LockMode, LockRequest, place_in_line
from ade.ports import LockQuery, Stores

MOST_REQUESTS = 10_000


class Standing(Struct, frozen=True, kw_only=True):
    """One request, as it stands to one resource."""

    request_id: str
    owner: str
    scope: str
    mode: LockMode
    granted: bool
    priority: int
    since: int  # granted, or asked for, at this moment
    token: int | None = None
    expires_in_ms: int = 0  # unless it is renewed; below 0: dead, and nobody has looked yet
    heartbeats: int = 0
    purpose: str | None = None
    task_id: str | None = None


class LockView(Struct, frozen=True, kw_only=True):
    """A resource that somebody holds or waits for."""

    namespace: str
    resource: str
    holders: list[Standing]
    waiters: list[Standing]


class LockGraph(Struct, frozen=True, kw_only=True):
    """Who cannot go on before whom, by the owners' names, and the rings among them."""

    requests: dict[str, LockRequest]
    edges: list[Edge]
    rings: list[Ring]


async def view_locks(
    stores: Stores,
    *,
    namespace: str | None = None,
    owner: str | None = None,
    resource: str | None = None,
    kind: str | None = None,
) -> list[LockView]:
    """Every resource that is locked, by namespace and name; `kind` is the part before the colon of its name."""
    assert stores.locks is not None
    requests = await stores.locks.find(LockQuery(namespace=namespace, limit=MOST_REQUESTS))
    steady = stores.clock.steady()
    by_resource: dict[tuple[str, str], list[LockRequest]] = {}
    for request in sorted(requests, key=place_in_line):
        for name in request.resources:
            if (request.is_granted or request.is_waiting) and _is_meant(name, resource, kind):
                by_resource.setdefault((request.namespace, name), []).append(request)
    views = []
    for (space, name), known in sorted(by_resource.items()):
        if owner is None or any(one.owner == owner for one in known):
            holders = [standing(one, name, steady) for one in known if one.is_granted]
            waiters = [standing(one, name, steady) for one in known if not one.is_granted]
            views.append(LockView(namespace=space, resource=name, holders=holders, waiters=waiters))
    return views


async def lock_graph(stores: Stores, namespace: str) -> LockGraph:
    assert stores.locks is not None
    found = await stores.locks.find(LockQuery(namespace=namespace, limit=MOST_REQUESTS))
    edges = edges_of(found)
    rings: dict[frozenset[str], Ring] = {}
    for scope in sorted({edge.scope for edge in edges}):
        ring = find_ring(edges, scope)
        if ring is not None:
            rings.setdefault(frozenset(edge.scope for edge in ring), ring)
    return LockGraph(requests={one.id: one for one in found}, edges=edges, rings=list(rings.values()))


def standing(request: LockRequest, resource: str, steady: int) -> Standing:
    item = next(item for item in request.items if item.resource == resource)
    return Standing(
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


def _is_meant(name: str, resource: str | None, kind: str | None) -> bool:
    return (resource is None or name == resource) and (kind is None or name.partition(":")[0] == kind)
