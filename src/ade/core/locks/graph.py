"""Who waits for whom as it is shown: every way is in it, but no short cuts, so that long lines stay readable."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ade.core.locks.deadlocks import Edge, edge_of, is_against
from ade.core.locks.records import LockRequest, place_in_line
from ade.core.locks.wishes import LockMode


def nearest_edges(requests: Iterable[LockRequest]) -> list[Edge]:
    """Of each waiter: those before it up to the next writer, who waits for everybody before himself; else the holders.

    So there are as many edges as requests, and not its square.
    """
    holders, lines = defaultdict[str, list[LockRequest]](list), defaultdict[str, list[LockRequest]](list)
    for request in requests:
        for resource in request.resources:
            if request.is_granted:
                holders[resource].append(request)
            elif request.is_waiting:
                lines[resource].append(request)
    return [
        edge
        for resource, line in sorted(lines.items())
        for edge in _edges_of(resource, sorted(line, key=place_in_line), holders[resource])
    ]


def _edges_of(resource: str, line: list[LockRequest], holders: list[LockRequest]) -> Iterator[Edge]:
    writer: LockRequest | None = None  # the last one that was passed
    readers: list[LockRequest] = []  # those after it
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


def scopes_in_rings(edges: Iterable[Edge]) -> list[str]:
    """Those that may be part of a ring: they wait, and somebody waits for them, also when all others are left out."""
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
