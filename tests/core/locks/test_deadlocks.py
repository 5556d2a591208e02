"""Rings of agents that wait for each other are found and opened; where there is none, nobody gives way."""

import random

import pytest

from ade.core.locks.deadlocks import Cure, GiveWay, LetPass, cure_of, edges_of, find_ring
from ade.core.locks.records import LockMode
from ade.core.locks.verbs import acquire, give_way, let_pass, release, upgrade
from tests.core.locks.memory import READ, WRITE, MemoryLocks, wanting


def take(locks: MemoryLocks, request_id: str, resource: str, mode: LockMode, *, scope: str, priority: int = 5) -> bool:
    request = wanting(request_id, (resource, mode), scope=scope, priority=priority)
    answer = locks.do(lambda book: acquire(book, request, wait_ms=None))
    return answer is not None and answer.is_granted


def cure_for(locks: MemoryLocks, scope: str) -> Cure | None:
    ring = find_ring(edges_of(locks.requests.values()), scope)
    return None if ring is None else cure_of(ring, locks.requests)


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

    assert cures == {GiveWay("wish-0")}, "the one with the worst priority"


def test_once_one_gives_way_and_lets_go_the_others_go_on() -> None:
    locks = MemoryLocks()
    ring_of(locks, 3)

    locks.do(lambda book: give_way(book, "wish-0", cycle=("agent-0", "agent-1", "agent-2")))
    locks.do(lambda book: release(book, "held-0"))

    assert locks.requests["wish-2"].is_granted
    assert cure_for(locks, "agent-1") is None


def test_among_equals_who_holds_least_gives_way_and_then_the_youngest() -> None:
    locks = MemoryLocks()
    take(locks, "extra", "thing:x", WRITE, scope="rich")
    take(locks, "r1", "thing:1", WRITE, scope="rich")
    take(locks, "p1", "thing:2", WRITE, scope="poor")
    take(locks, "p2", "thing:1", WRITE, scope="poor")
    take(locks, "r2", "thing:2", WRITE, scope="rich")

    assert cure_for(locks, "rich") == GiveWay("p2")


def test_a_ring_through_the_order_of_a_line_is_opened_without_a_victim() -> None:
    locks = MemoryLocks()
    take(locks, "c-reads", "db", READ, scope="c")
    take(locks, "a-repo", "repo", WRITE, scope="a")
    take(locks, "b-writes", "db", WRITE, scope="b")  # waits for c
    take(locks, "c-repo", "repo", WRITE, scope="c")  # waits for a
    take(locks, "a-reads", "db", READ, scope="a")  # waits only because b stands before it

    assert cure_for(locks, "a") == LetPass("a-reads", before="b-writes")

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

    assert isinstance(cure, GiveWay)
    assert cure.request_id in {"a-up", "b-repo"}


def test_waiting_is_no_deadlock() -> None:
    """Everybody takes things in the order of their names: there can be no ring, and none is seen."""
    dice = random.Random(7)
    for _ in range(300):
        locks = MemoryLocks()
        agents = [f"agent-{number}" for number in range(5)]
        waiting: dict[str, bool] = dict.fromkeys(agents, False)
        reached = dict.fromkeys(agents, -1)
        for step in range(40):
            agent = dice.choice(agents)
            waiting[agent] = any(one.scope == agent and not one.is_granted for one in locks.requests.values())
            if not waiting[agent] and reached[agent] < 7 and dice.random() < 0.7:
                reached[agent] += dice.randint(1, 2)
                mode = dice.choice([READ, WRITE])
                take(locks, f"{agent}-{step}", f"thing:{reached[agent]}", mode, scope=agent)
            elif not waiting[agent]:
                for one in [one.id for one in locks.requests.values() if one.scope == agent]:
                    locks.do(lambda book, one=one: release(book, one))  # type: ignore[misc]  # bound now, not later
                reached[agent] = -1
            assert all(cure_for(locks, agent) is None for agent in agents)
