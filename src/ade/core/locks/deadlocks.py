"""Who waits for whom, rings among them, and who gives way.

Two kinds of edges, as in a database: one waits for those who hold what it wants (hard), and for those before it in line
who want what conflicts (soft). A ring with a soft edge may be opened by changing the order of that line; otherwise one
of those who wait in the ring gives way.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from ade.core.locks.records import LockRequest, conflict, place_in_line


@dataclass(frozen=True, slots=True)
class Edge:
    """`waiter` cannot go on before `blocker` does. Both are ids of requests; a ring goes through their scopes."""

    waiter: str
    blocker: str
    scope: str
    blocking_scope: str
    resource: str
    is_hard: bool


Ring = tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class LetPass:
    """Whoever waits only behind another one, goes before it."""

    request_id: str
    before: str


@dataclass(frozen=True, slots=True)
class GiveWay:
    """This wait must fail."""

    request_id: str


Cure = LetPass | GiveWay


def edges_of(requests: Iterable[LockRequest]) -> list[Edge]:
    """All edges among the requests of a namespace."""
    holders: dict[str, list[LockRequest]] = defaultdict(list)
    lines: dict[str, list[LockRequest]] = defaultdict(list)
    for request in requests:
        for resource in request.resources:
            if request.is_granted:
                holders[resource].append(request)
            elif request.is_waiting:
                lines[resource].append(request)
    edges = []
    for resource, line in lines.items():
        line.sort(key=place_in_line)
        for at, waiter in enumerate(line):
            edges += [
                _edge(waiter, one, resource, True) for one in holders[resource] if _against(waiter, one, resource)
            ]
            edges += [_edge(waiter, one, resource, False) for one in line[:at] if _against(waiter, one, resource)]
    return edges


def find_ring(edges: Sequence[Edge], scope: str) -> Ring | None:
    """A shortest ring that this scope is part of."""
    leaving: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        leaving[edge.scope].append(edge)
    reached: dict[str, Ring] = {scope: ()}
    frontier = [scope]
    while frontier:
        following = []
        for here in frontier:
            for edge in leaving[here]:
                if edge.blocking_scope == scope:
                    return (*reached[here], edge)
                if edge.blocking_scope not in reached:
                    reached[edge.blocking_scope] = (*reached[here], edge)
                    following.append(edge.blocking_scope)
        frontier = following
    return None


def cure_of(ring: Ring, requests: Mapping[str, LockRequest]) -> Cure:
    """A change of order if one opens the ring without closing another one, else the one who gives way."""
    for edge in ring:
        if not edge.is_hard and _opens(edge, ring, requests):
            return LetPass(edge.waiter, edge.blocker)
    waiting = {edge.waiter: requests[edge.waiter] for edge in ring}
    held: dict[str, int] = defaultdict(int)
    for request in requests.values():
        if request.is_granted:
            held[request.scope] += len(request.items)
    return GiveWay(max(waiting.values(), key=lambda one: (one.priority, -held[one.scope], one.seq, one.id)).id)


def _opens(edge: Edge, ring: Ring, requests: Mapping[str, LockRequest]) -> bool:
    """Whether no ring is left around those of this ring when the waiter of the edge goes first."""
    moved = requests[edge.waiter]
    first = structs.replace(moved, rank=requests[edge.blocker].rank - 0.5)
    edges = edges_of(first if one.id == moved.id else one for one in requests.values())
    return all(find_ring(edges, each.scope) is None for each in ring)


def _against(waiter: LockRequest, other: LockRequest, resource: str) -> bool:
    if other.id in (waiter.id, waiter.upgrades):
        return False
    wanted, taken = waiter.mode_of(resource), other.mode_of(resource)
    return wanted is not None and taken is not None and conflict(wanted, taken)


def _edge(waiter: LockRequest, blocker: LockRequest, resource: str, is_hard: bool) -> Edge:
    return Edge(waiter.id, blocker.id, waiter.scope, blocker.scope, resource, is_hard)
