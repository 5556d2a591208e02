"""Rings of agents that wait for each other are found and opened; where there is none, nobody gives way."""

import random
from functools import partial

import pytest

from ade.locks.deadlocks import DeadlockVictimChoice, QueueReorder, Resolution, WaitGraph, is_against, resolution_of
from ade.locks.rules import abort_victim, acquire, let_pass, release, upgrade
from tests.domain import LockMode, LockRequest
from tests.locks.memory import READ, WRITE, MemoryLocks, wanting


def take(locks: MemoryLocks, request_id: str, resource: str, mode: LockMode, *, scope: str, priority: int = 5) -> bool:
    request = wanting(request_id, (resource, mode), scope=scope, priority=priority)
    answer = locks.do(lambda book: acquire(book, request, wait_ms=None))
    return answer is not None and answer.is_granted


def cure_for(locks: MemoryLocks, scope: str) -> Resolution | None:
    ring = WaitGraph(locks.requests.values()).ring_of(scope)
    return None if ring is None else resolution_of(ring, locks.requests)


def ring_of(locks: MemoryLocks, size: int) -> None:
    """Everybody holds one thing and wants the next one's."""
    for number in range(size):
        take(locks, f"held-{number}", f"thing:{number}", WRITE, scope=f"agent-{number}")
    for number in range(size):
        wanted = f"thing:{(number + 1) % size}"
        take(locks, f"wish-{number}", wanted, WRITE, scope=f"agent-{number}", priority=4 if number else 5)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_ring_is_found_by_everybody_in_it_and_the_same_one_gives_way(size: int) -> None:
    locks = MemoryLocks()
    ring_of(locks, size)

    cures = {cure_for(locks, f"agent-{number}") for number in range(size)}

    assert cures == {DeadlockVictimChoice("wish-0")}, "the one with the worst priority"


def test_once_one_gives_way_and_lets_go_the_others_go_on() -> None:
    locks = MemoryLocks()
    ring_of(locks, 3)

    locks.do(lambda book: abort_victim(book, "wish-0", cycle=("agent-0", "agent-1", "agent-2")))
    locks.do(lambda book: release(book, "held-0"))

    assert locks.requests["wish-2"].is_granted
    assert cure_for(locks, "agent-1") is None


def test_one_may_have_to_go_past_several_in_line_and_nobody_gives_way() -> None:
    locks = MemoryLocks()
    take(locks, "c-db", "db", WRITE, scope="c")
    for agent in ("a", "b"):  # both want the database of c, and the repository, all or none
        request = wanting(agent, ("db", WRITE), ("repo", WRITE))
        locks.do(lambda book, request=request: acquire(book, request, wait_ms=None))  # type: ignore[misc]  # bound now
    take(locks, "c-repo", "repo", WRITE, scope="c")  # free, but two stand before it who wait for c

    assert {cure_for(locks, agent) for agent in ("a", "b", "c")} == {QueueReorder("c-repo", before="a")}
    locks.do(lambda book: let_pass(book, "c-repo", before="a"))
    assert locks.requests["c-repo"].is_granted


def test_however_many_stand_before_it_who_hold_nothing_one_who_holds_something_goes_past_them() -> None:
    locks = MemoryLocks()
    take(locks, "c-db", "db", WRITE, scope="c")
    in_line(locks, 150, "db", "repo")
    take(locks, "c-repo", "repo", WRITE, scope="c")

    cure = cure_for(locks, "c")

    assert cure == QueueReorder("c-repo", before="w-0")
    locks.do(lambda book: let_pass(book, "c-repo", before="w-0"))
    assert locks.requests["c-repo"].is_granted


def test_of_two_rings_in_one_the_one_who_holds_nothing_is_not_told_to_give_way() -> None:
    """It would come back to its old place, and nothing would be free: so it went on for ever."""
    locks = MemoryLocks()
    for agent in ("a", "b"):  # a ring of two, that no change of order opens
        take(locks, f"{agent}-held", f"thing:{agent}", WRITE, scope=agent)
    in_line(locks, 1, "thing:a", "zone")
    take(locks, "a-zone", "zone", WRITE, scope="a")  # behind one who waits for a
    take(locks, "a-wish", "thing:b", WRITE, scope="a")
    take(locks, "b-wish", "thing:a", WRITE, scope="b")

    for scope in ("w-0", "a"):
        ring = WaitGraph(locks.requests.values()).ring_of(scope)
        assert ring is not None
        cure = resolution_of(ring, locks.requests)
        held = {one.scope for one in locks.requests.values() if one.is_granted}
        assert isinstance(cure, QueueReorder) or locks.requests[cure.request_id].scope in held


def in_line(locks: MemoryLocks, count: int, *resources: str) -> None:
    """Tasks that want all of these or nothing."""
    for number in range(count):
        request = wanting(f"w-{number}", *((resource, WRITE) for resource in resources))
        locks.do(partial(acquire, request=request, wait_ms=None))


def test_among_equals_who_holds_least_gives_way_and_then_the_youngest() -> None:
    locks = MemoryLocks()
    take(locks, "extra", "thing:x", WRITE, scope="rich")
    take(locks, "r1", "thing:1", WRITE, scope="rich")
    take(locks, "p1", "thing:2", WRITE, scope="poor")
    take(locks, "p2", "thing:1", WRITE, scope="poor")
    take(locks, "r2", "thing:2", WRITE, scope="rich")

    assert cure_for(locks, "rich") == DeadlockVictimChoice("p2")


def test_a_ring_through_the_order_of_a_line_is_opened_without_a_victim() -> None:
    locks = MemoryLocks()
    take(locks, "c-reads", "db", READ, scope="c")
    take(locks, "a-repo", "repo", WRITE, scope="a")
    take(locks, "b-writes", "db", WRITE, scope="b")  # waits for c
    take(locks, "c-repo", "repo", WRITE, scope="c")  # waits for a
    take(locks, "a-reads", "db", READ, scope="a")  # waits only because b stands before it

    assert cure_for(locks, "a") == QueueReorder("a-reads", before="b-writes")

    locks.do(lambda book: let_pass(book, "a-reads", before="b-writes"))
    assert locks.requests["a-reads"].is_granted
    assert cure_for(locks, "b") is None


def test_a_reader_that_wants_to_write_in_a_ring_is_found() -> None:
    locks = MemoryLocks()
    take(locks, "a-db", "db", READ, scope="a")
    take(locks, "b-db", "db", READ, scope="b")
    take(locks, "a-repo", "repo", WRITE, scope="a")
    locks.do(lambda book: upgrade(book, "a-db", "db", upgrade_id="a-up", wait_ms=None))
    take(locks, "b-repo", "repo", WRITE, scope="b")

    cure = cure_for(locks, "a")

    assert isinstance(cure, DeadlockVictimChoice)
    assert cure.request_id in {"a-up", "b-repo"}


class Crowd:
    """Four agents that take things one by one, in the order of their names, and at last let go of all."""

    def __init__(self, randomness: random.Random) -> None:
        self.locks = MemoryLocks()
        self._dice = randomness
        self._reached = {f"agent-{number}": 0 for number in range(4)}
        self._asked = 0

    def act(self) -> bool:
        """Somebody who does not wait takes something or lets go; whether it has to wait now."""
        waiting = {one.scope for one in self.locks.requests.values() if one.is_waiting}
        agent = self._dice.choice(sorted(self._reached.keys() - waiting))
        if self._reached[agent] < 3 and self._dice.random() < 0.8:
            return not self._take_one_more(agent)
        for held in [one.id for one in self.locks.requests.values() if one.scope == agent]:
            self.locks.do(partial(release, request_id=held))
        self._reached[agent] = 0
        return False

    def is_in_a_ring(self) -> bool:
        waits = WaitGraph(self.locks.requests.values())
        return any(waits.ring_of(scope) for scope in self._reached)

    def _take_one_more(self, agent: str) -> bool:
        self._reached[agent] += self._dice.randint(1, 2)
        self._asked += 1
        thing, mode = f"thing:{self._reached[agent]}", self._dice.choice([READ, WRITE])
        priority = self._dice.choice([2, 5])
        return take(self.locks, f"{agent}-{self._asked}", thing, mode, scope=agent, priority=priority)


def test_waiting_is_no_deadlock() -> None:
    """Ten thousand random orders in which there can be no ring: none is seen, so nobody has to give way."""
    randomness, waits = random.Random(11), 0
    for _ in range(10_000):
        crowd = Crowd(randomness)
        for _ in range(8):
            if crowd.act():
                waits += 1
                assert not crowd.is_in_a_ring()
    assert waits > 10_000, "else there was nothing to see"


def rings_by_force(locks: MemoryLocks) -> set[str]:
    """The scopes that are in some ring, found by walking every edge there is."""
    following: dict[str, set[str]] = {}
    for edge in WaitGraph(locks.requests.values()).edges():
        following.setdefault(edge.scope, set()).add(edge.blocking_scope)

    def reaches(scope: str) -> bool:
        seen, frontier = set[str](), {scope}
        while frontier:
            frontier = {after for here in frontier for after in following.get(here, ())} - seen
            seen |= frontier
        return scope in seen

    return {scope for scope in following if reaches(scope)}


@pytest.mark.parametrize("seed", range(60))
def test_the_quick_search_finds_exactly_the_rings_there_are(seed: int) -> None:
    randomness = random.Random(seed)
    locks = MemoryLocks()
    for number in range(40):
        wanted = randomness.sample(["a", "b", "c", "d"], randomness.randint(1, 3))
        items = [(resource, randomness.choice([READ, WRITE])) for resource in wanted]
        request = wanting(f"r{number}", *items, scope=f"s{randomness.randrange(8)}", priority=randomness.randrange(10))
        locks.do(partial(acquire, request=request, wait_ms=None))
    waits = WaitGraph(locks.requests.values())

    assert {scope for scope in waits.scopes() if waits.ring_of(scope)} == rings_by_force(locks)


def test_a_thousand_who_wait_in_one_line_are_passed_once() -> None:
    locks = MemoryLocks()
    for number in range(1_000):
        take(locks, f"r{number}", "thing", WRITE, scope=f"agent-{number}")
    waits = WaitGraph(locks.requests.values())
    looked_at = 0

    def counting(waiter: LockRequest, one: LockRequest, resource: str) -> bool:
        nonlocal looked_at
        looked_at += 1
        return is_against(waiter, one, resource)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ade.locks.deadlocks.is_against", counting)
        assert waits.ring_of("agent-999") is None
    assert looked_at <= 2_000
