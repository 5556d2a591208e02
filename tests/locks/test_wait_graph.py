"""The graph that is shown leaves out short cuts alone: who waits for whom, and every ring, are as they are."""

import random
from collections.abc import Iterable
from functools import partial

import pytest

from ade.locks.deadlocks import Edge, WaitGraph, nearest_edges, scopes_in_cycles
from ade.locks.rules import acquire, upgrade
from tests.locks.memory import READ, WRITE, MemoryLocks, wanting


def crowd(seed: int) -> MemoryLocks:
    randomness, locks = random.Random(seed), MemoryLocks()
    for number in range(40):
        wanted = randomness.sample(["a", "b", "c", "d"], randomness.randint(1, 3))
        items = [(resource, randomness.choice([READ, WRITE])) for resource in wanted]
        request = wanting(f"r{number}", *items, scope=f"s{randomness.randrange(12)}", priority=randomness.randrange(10))
        locks.do(partial(acquire, request=request, wait_ms=None))
    readers = [(one.id, item) for one in locks.requests.values() for item in one.items if one.is_granted]
    for request_id, item in [each for each in readers if each[1].mode is READ][:1]:
        widen = partial(upgrade, grant_id=request_id, resource=item.resource, upgrade_id="up", wait_ms=None)
        locks.do(widen)
    return locks


def reached(edges: Iterable[Edge]) -> set[tuple[str, str]]:
    """Who waits for whom, also by way of others."""
    following: dict[str, set[str]] = {}
    for edge in edges:
        following.setdefault(edge.scope, set()).add(edge.blocking_scope)
    pairs = set[tuple[str, str]]()
    for scope in following:
        frontier = {scope}
        while frontier:
            frontier = {after for here in frontier for after in following.get(here, ()) if (scope, after) not in pairs}
            pairs |= {(scope, after) for after in frontier}
    return pairs


@pytest.mark.parametrize("seed", range(60))
def test_everybody_waits_for_the_same_ones_with_fewer_edges(seed: int) -> None:
    requests = crowd(seed).requests.values()
    waits, nearest = WaitGraph(requests), nearest_edges(requests)

    assert reached(nearest) == reached(waits.edges())
    assert {(edge.waiter, edge.blocker) for edge in nearest} <= {(edge.waiter, edge.blocker) for edge in waits.edges()}
    assert {scope for scope in waits.scopes() if waits.ring_of(scope)} <= set(scopes_in_cycles(nearest))


def test_a_long_line_has_as_many_edges_as_waiters_and_nobody_in_it_is_suspected() -> None:
    locks = MemoryLocks()
    for number in range(300):
        locks.do(partial(acquire, request=wanting(f"r{number}", ("thing", WRITE), scope=f"s{number}"), wait_ms=None))
    edges = nearest_edges(locks.requests.values())

    assert len(edges) == 299
    assert scopes_in_cycles(edges) == []
