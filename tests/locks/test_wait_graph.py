"""The graph that is shown leaves out short cuts alone: who waits for whom, and every ring, are as they are."""

import random
from collections.abc import Iterable
from functools import partial

import pytest

from ade.locks.deadlocks import Edge, WaitGraph, nearest_edges, scopes_in_cycles
from ade.locks.model import write
from ade.locks.rules import acquire, upgrade
from ade.locks.views import LockGraph, lock_graph
from tests.domain import LockLimits, Stores, validate_request
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


async def crossing(stores: Stores, *asked: str) -> None:
    """Each is "scope resource namespace"; whoever does not get the lock waits."""
    for number, each in enumerate(asked):
        scope, resource, namespace = each.split()
        request = validate_request(
            id=f"r{number}", owner=f"agent-{scope}", scope=scope, wanted=[write(resource)], namespace=namespace
        )
        await stores.locks.acquire(request, wait_ms=None, limits=LockLimits())


def seen(graph: LockGraph) -> set[tuple[str, str, str]]:
    """Who waits for whom, and in which namespace."""
    return {(edge.scope, edge.blocking_scope, graph.requests[edge.waiter].namespace) for edge in graph.edges}


async def test_a_ring_through_three_namespaces_is_whole_in_the_graph_of_each(stores: Stores) -> None:
    others = ("p q d", "s q d")  # those have nothing to do with it
    await crossing(stores, "x r a", "y r b", "z r c", "x r b", "y r c", "z r a", *others)
    for namespace in ("a", "b", "c"):
        graph = await lock_graph(stores, namespace)
        assert seen(graph) == {("x", "y", "b"), ("y", "z", "c"), ("z", "x", "a")}
        assert [{edge.scope for edge in ring} for ring in graph.rings] == [{"x", "y", "z"}]
        assert len(graph.requests) == 6


async def test_waits_that_lead_into_or_out_of_a_namespace_are_shown_and_no_others(stores: Stores) -> None:
    await crossing(stores, "x r a", "y r b", "x r b", "z q b", "y q b", "p t b", "x t c", "s t c", "q t b")
    assert seen(await lock_graph(stores, "a")) == {("x", "y", "b"), ("s", "x", "c")}
    assert seen(await lock_graph(stores, "b")) == {("x", "y", "b"), ("y", "z", "b"), ("q", "p", "b"), ("s", "x", "c")}
    assert seen(await lock_graph(stores, "elsewhere")) == set()
