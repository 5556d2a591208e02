"""Deadlock detection: the wait-for graph, its cycles, and how to resolve them.

As in a database, there are two kinds of edges between lock requests: a request waits for the holders of what it wants
(hard), and for conflicting requests ahead of it in the wait queue (soft). A cycle with a soft edge can be resolved by
reordering that queue. Otherwise one of the waiters in the cycle becomes the victim.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs

from ade.locks.model import LockMode, LockRequest, conflict, place_in_line


class Edge(Struct, frozen=True):
    """`waiter` cannot go on before `blocker` does. Both are ids of requests; a ring goes through their scopes."""

    waiter: str
    blocker: str
    scope: str
    blocking_scope: str
    resource: str
    is_hard: bool


Cycle = tuple[Edge, ...]


class QueueReorder(Struct, frozen=True):
    """Resolve the deadlock by moving a waiter ahead of another one."""

    request_id: str
    before: str


class DeadlockVictimChoice(Struct, frozen=True):
    """Resolve the deadlock by failing this waiter."""

    request_id: str


class GrantReturn(Struct, frozen=True):
    """Resolve the deadlock by taking granted locks back from a task that no worker has claimed yet."""

    request_id: str


Resolution = QueueReorder | DeadlockVictimChoice | GrantReturn


Place = tuple[str, str]  # a namespace and a resource in it


class WaitGraph:
    """The wait-for graph of lock requests. A scope can hold and wait in several namespaces."""

    def __init__(self, requests: Iterable[LockRequest]) -> None:
        self._holders, self._lines = _by_place(requests := list(requests))
        self._waiters: dict[str, list[LockRequest]] = defaultdict(list)  # by scope
        for request in requests:
            if request.is_waiting:
                self._waiters[request.scope].append(request)
        self._places: dict[tuple[str, str], int] = {}
        for (_, resource), line in self._lines.items():
            line.sort(key=place_in_line)
            self._places |= {(resource, one.id): place for place, one in enumerate(line)}

    def scopes(self) -> list[str]:
        """Return the scopes that wait."""
        return sorted(self._waiters)

    def edges(self) -> list[Edge]:
        """Return all edges: quadratic in the length of a wait queue."""
        return [
            edge
            for (_, resource), line in sorted(self._lines.items())
            for waiter in line
            for edge in (*self._hard(waiter, resource), *self._soft(waiter, resource, 0))
        ]

    def ring_of(self, scope: str) -> Cycle | None:
        """Return a shortest cycle that contains this scope. Each position of a queue is visited once, so the cost is
        linear in its length.
        """
        reached: dict[str, Cycle] = {scope: ()}
        frontier, met = [scope], _Visited()
        while frontier:
            following = []
            for here in frontier:
                for edge in self._leaving(here, met):
                    if edge.blocking_scope == scope:
                        return (*reached[here], edge)
                    if edge.blocking_scope not in reached:
                        reached[edge.blocking_scope] = (*reached[here], edge)
                        following.append(edge.blocking_scope)
            frontier = following
        return None

    def _leaving(self, scope: str, met: "_Visited") -> Iterator[Edge]:
        for waiter in self._waiters[scope]:
            for resource in waiter.resources:
                kind = (waiter.namespace, resource, waiter.mode_of(resource) is LockMode.EXCLUSIVE)
                if kind not in met.holders:
                    yield from self._hard(waiter, resource)
                    if waiter.upgrades is None:  # an upgrade skips its own shared lock
                        met.holders.add(kind)
                yield from self._soft(waiter, resource, met.places.get(kind, 0))
                met.places[kind] = max(met.places.get(kind, 0), self._places[resource, waiter.id])

    def _hard(self, waiter: LockRequest, resource: str) -> Iterator[Edge]:
        for one in self._holders[waiter.namespace, resource]:
            if is_against(waiter, one, resource):
                yield edge_of(waiter, one, resource, True)

    def _soft(self, waiter: LockRequest, resource: str, first: int) -> Iterator[Edge]:
        line = self._lines[waiter.namespace, resource]
        for place in range(first, self._places[resource, waiter.id]):
            if is_against(waiter, line[place], resource):
                yield edge_of(waiter, line[place], resource, False)


class _Visited:
    """What a search has visited, by namespace, resource, and whether the waiter wanted an exclusive lock."""

    def __init__(self) -> None:
        self.holders: set[tuple[str, str, bool]] = set()
        self.places: dict[tuple[str, str, bool], int] = {}  # how far each wait queue was searched


def _by_place(
    requests: Iterable[LockRequest],
) -> tuple[defaultdict[Place, list[LockRequest]], defaultdict[Place, list[LockRequest]]]:
    """Return the holders and the waiters of each resource."""
    holders, lines = defaultdict[Place, list[LockRequest]](list), defaultdict[Place, list[LockRequest]](list)
    for request in requests:
        for resource in request.resources:
            if request.is_granted:
                holders[request.namespace, resource].append(request)
            elif request.is_waiting:
                lines[request.namespace, resource].append(request)
    return holders, lines


def resolution_of(ring: Cycle, requests: Mapping[str, LockRequest]) -> Resolution:
    """Return a reordering that opens the cycle without closing another one, else the victim.

    A waiter that holds nothing is never the victim: aborting it would free nothing, and it would return to its old
    position and close the cycle again. Instead, a waiter that holds something passes it, which removes one such cycle
    even if others remain.
    """
    held: dict[str, int] = defaultdict(int)
    for request in requests.values():
        if request.is_granted:
            held[request.scope] += len(request.items)
    for edge in ring:
        for blocker in () if edge.is_hard else requests_ahead(edge, requests):
            if _opens(edge.waiter, blocker, ring, requests):
                return QueueReorder(edge.waiter, blocker)
    for edge in ring:
        if held[edge.scope] and not held[edge.blocking_scope]:
            return QueueReorder(edge.waiter, edge.blocker)
    waiting = {edge.waiter: requests[edge.waiter] for edge in ring}
    return DeadlockVictimChoice(
        max(waiting.values(), key=lambda one: (one.priority, -held[one.scope], one.seq, one.id)).id
    )


def requests_ahead(edge: Edge, requests: Mapping[str, LockRequest]) -> list[str]:
    """Return the blocker and a sample of the blocking waiters ahead of it, at doubling distances up to the first: a
    waiter may have to pass many, and should pass at most twice as many as needed.
    """
    waiter, blocker = requests[edge.waiter], requests[edge.blocker]
    before = [
        one
        for one in requests.values()
        if one.is_waiting
        and place_in_line(one) < place_in_line(blocker)
        and any(is_against(waiter, one, resource) for resource in waiter.resources)
    ]
    before.sort(key=place_in_line, reverse=True)
    some = [before[2**power - 1] for power in range(len(before).bit_length())]
    return list(dict.fromkeys([edge.blocker, *(one.id for one in (*some, *before[-1:]))]))


def _opens(waiter: str, blocker: str, ring: Cycle, requests: Mapping[str, LockRequest]) -> bool:
    """Whether none of the scopes in the cycle is in a cycle after the waiter moves ahead of the blocker."""
    moved = requests[waiter]
    first = structs.replace(moved, rank=requests[blocker].rank - 0.5)
    waits = WaitGraph(first if one.id == moved.id else one for one in requests.values())
    return all(waits.ring_of(each.scope) is None for each in ring)


def is_against(waiter: LockRequest, other: LockRequest, resource: str) -> bool:
    """Whether the other request blocks the waiter on this resource."""
    if other.id in (waiter.id, waiter.upgrades) or other.namespace != waiter.namespace:
        return False
    wanted, taken = waiter.mode_of(resource), other.mode_of(resource)
    return wanted is not None and taken is not None and conflict(wanted, taken)


def edge_of(waiter: LockRequest, blocker: LockRequest, resource: str, is_hard: bool) -> Edge:
    """Create the edge from a waiter to its blocker."""
    return Edge(waiter.id, blocker.id, waiter.scope, blocker.scope, resource, is_hard)


# The displayed graph keeps reachability but omits transitive edges, so that long wait queues stay readable.


def nearest_edges(requests: Iterable[LockRequest]) -> list[Edge]:
    """Return, for each waiter, the edges to those ahead of it up to the nearest writer, which waits for all before it;
    else to the holders.

    So the number of edges is linear in the number of requests, not quadratic.
    """
    holders, lines = _by_place(requests)
    return [
        edge
        for place, line in sorted(lines.items())
        for edge in _edges_of(place[1], sorted(line, key=place_in_line), holders[place])
    ]


def _edges_of(resource: str, line: list[LockRequest], holders: list[LockRequest]) -> Iterator[Edge]:
    writer: LockRequest | None = None  # the last writer passed
    readers: list[LockRequest] = []  # readers after that writer
    for waiter in line:
        is_writer = waiter.mode_of(resource) is LockMode.EXCLUSIVE
        if writer is None:
            yield from (edge_of(waiter, one, resource, True) for one in holders if is_against(waiter, one, resource))
        else:
            yield edge_of(waiter, writer, resource, False)
        if is_writer:
            yield from (edge_of(waiter, one, resource, False) for one in readers)
            writer, readers = waiter, []
        else:
            readers.append(waiter)


def scopes_in_cycles(edges: Iterable[Edge]) -> list[str]:
    """Return scopes that may be in a cycle: repeatedly drop scopes that wait for none or that none waits for."""
    waits_for, waited_for = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for edge in edges:
        waits_for[edge.scope].add(edge.blocking_scope)
        waited_for[edge.blocking_scope].add(edge.scope)
    scopes = set(waits_for) | set(waited_for)
    out = [scope for scope in scopes if not waits_for[scope] or not waited_for[scope]]
    while out:
        scope = out.pop()
        if scope not in scopes:
            continue
        scopes.discard(scope)
        for other in waits_for[scope]:
            waited_for[other].discard(scope)
        for other in waited_for[scope]:
            waits_for[other].discard(scope)
        near = waits_for[scope] | waited_for[scope]
        out += [other for other in near & scopes if not waits_for[other] or not waited_for[other]]
    return sorted(scopes)
