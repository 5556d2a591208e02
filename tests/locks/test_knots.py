"""What is stuck is exactly what no order of events can move, and one victim at a time gets everyone through."""

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ade.locks.deadlocks import DeadlockVictimChoice, GrantReturn, QueueReorder
from ade.locks.knots import (
    AwaitingVictim,
    Clause,
    Waiter,
    WaitSnapshot,
    cycle_through,
    knots_in,
    request_node,
    resolution_of_knot,
    stuck_in,
)
from ade.locks.rules import abort_victim, acquire, let_pass, release
from tests.locks.memory import WRITE, MemoryLocks, wanting

RUNS, PENDING, LOCKS, LIMITS = 5, 4, ["a", "b", "c"], [1, 2]


@dataclass
class Site:
    """Runs that hold locks and places, tasks that wait for both, and everyone who waits for a task."""

    locks: MemoryLocks = field(default_factory=MemoryLocks)
    running: dict[str, int | None] = field(default_factory=dict)  # task -> the limit that it uses
    pending: dict[str, int | None] = field(default_factory=dict)
    awaits: dict[str, str] = field(default_factory=dict)  # a running task -> the task it waits for
    wants: dict[str, str] = field(default_factory=dict)  # a running task -> its waiting lock request
    after: dict[str, str] = field(default_factory=dict)  # a pending task -> its dependency
    ended: set[str] = field(default_factory=set)

    def snapshot(self) -> WaitSnapshot:
        found = WaitSnapshot(requests=dict(self.locks.requests))
        found.nodes = {one.id: f"task:{one.scope}" for one in self.locks.requests.values()}
        for number, (task, _) in enumerate(self.running.items()):
            waits = [request_node(self.wants[task])] if task in self.wants else []
            waits += [f"wait:{task}"] if task in self.awaits else []
            for wait in waits:
                found.others[wait] = [Clause((f"task:{self.awaits[task]}",))] if wait.startswith("wait:") else []
            if waits:
                found.others[f"task:{task}"] = [Clause(tuple(waits))]
                found.waiters[f"task:{task}"] = Waiter(5, number)
        for task, limit in self.pending.items():
            clauses = [Clause((f"task:{self.after[task]}",))] if task in self.after else []
            users = tuple(f"task:{one}" for one, used in self.running.items() if used == limit)
            if limit is not None and len(users) >= LIMITS[limit]:
                clauses.append(Clause(users, needed=len(users) - LIMITS[limit] + 1, is_held=True))
            found.others[f"task:{task}"] = clauses
        return found

    def can_move(self) -> bool:
        """End a node that really can end: by the rules of locks, and by counting places."""
        for task in list(self.running):
            if task not in self.awaits and task not in self.wants:
                return self._end(task)
            if self.awaits.get(task) in self.ended:
                del self.awaits[task]
                return True
            if task in self.wants and self.locks.requests[self.wants[task]].is_granted:
                del self.wants[task]
                return True
        for task, limit in list(self.pending.items()):
            request = self.locks.requests.get(f"{task}-locks")
            has_place = limit is None or sum(used == limit for used in self.running.values()) < LIMITS[limit]
            has_locks = request is None or request.is_granted
            if has_place and has_locks and self.after.get(task, "") in {"", *self.ended}:
                del self.pending[task]
                self.running[task] = limit
                return True
        return False

    def _end(self, task: str) -> bool:
        self.let_go(task)
        del self.running[task]
        self.ended.add(task)
        return True

    def let_go(self, task: str) -> None:
        for one in [one.id for one in self.locks.requests.values() if one.scope == task]:
            self.locks.do(partial(release, request_id=one))

    def fail(self, task: str) -> None:
        """The victim lets go of all, and its next run finds nothing to wait for."""
        self.awaits.pop(task, None)
        self.wants.pop(task, None)
        self._end(task)

    def run_down(self) -> set[str]:
        """Let everyone go on who can; returns who never does."""
        while self.can_move():
            pass
        return set(self.running) | set(self.pending)


@st.composite
def sites(draw: st.DrawFn) -> Site:
    site = Site()
    for number in range(draw(st.integers(1, RUNS))):
        limit = draw(st.sampled_from([None, 0, 1]))
        if limit is not None and sum(used == limit for used in site.running.values()) >= LIMITS[limit]:
            limit = None
        site.running[f"r{number}"] = limit
    for name in LOCKS:
        holder = draw(st.sampled_from([None, *site.running]))
        if holder is not None:
            ask(site, holder, f"{holder}-{name}", name)
    names = [f"p{number}" for number in range(draw(st.integers(0, PENDING)))]
    for place, task in enumerate(names):
        site.pending[task] = draw(st.sampled_from([None, 0, 1]))
        before = draw(st.sampled_from([None, *names[:place]]))
        if before is not None:
            site.after[task] = before
    for task in draw(st.permutations([*site.running, *site.pending])):
        (pending_waits if task in site.pending else running_waits)(draw, site, task)
    return site


def pending_waits(draw: st.DrawFn, site: Site, task: str) -> None:
    wanted = draw(st.sets(st.sampled_from(LOCKS), max_size=2))
    if wanted and task not in site.after:
        ask(site, task, f"{task}-locks", *sorted(wanted), unattended=True)


def running_waits(draw: st.DrawFn, site: Site, task: str) -> None:
    kind = draw(st.sampled_from(["nothing", "lock", "task", "task"]))
    others = [each for each in (*site.running, *site.pending) if each != task]
    if kind == "task" and others:
        site.awaits[task] = draw(st.sampled_from(others))
    elif kind == "lock" and not ask(site, task, f"{task}-wish", draw(st.sampled_from(LOCKS))):
        site.wants[task] = f"{task}-wish"


def ask(site: Site, task: str, request_id: str, *names: str, unattended: bool = False) -> bool:
    request = wanting(request_id, *((name, WRITE) for name in names), scope=task)
    if unattended:
        request = structs.replace(request, unattended=True)
    answer = site.locks.do(partial(acquire, request=request, wait_ms=None))
    return answer is not None and answer.is_granted


@given(sites())
def test_stuck_is_exactly_what_never_goes_on(site: Site) -> None:
    stuck = {node.removeprefix("task:") for node in stuck_in(site.snapshot().waits()) if node.startswith("task:")}

    assert stuck == site.run_down()


@given(sites())
def test_one_resolution_after_the_other_gets_everyone_through(site: Site) -> None:
    for _ in range(4 * (RUNS + PENDING)):
        left = site.run_down()
        if not left:
            return
        snapshot = site.snapshot()
        waits = snapshot.waits()
        knots = knots_in(waits, stuck_in(waits))
        assert knots, f"{left} are stuck, and no waiter was found that could be notified"
        cure = resolution_of_knot(snapshot, knots[0])
        match cure:
            case GrantReturn(request_id):
                site.locks.do(partial(release, request_id=request_id))
                assert site.can_move(), "nobody had to fail, and it helped"
            case QueueReorder(request_id, before):
                site.locks.do(partial(let_pass, request_id=request_id, before=before))
                assert site.can_move(), "nobody had to fail, and it helped"
            case DeadlockVictimChoice(request_id):
                task = site.locks.requests[request_id].scope
                site.locks.do(partial(abort_victim, request_id=request_id, cycle=()))
                site.fail(task)
            case AwaitingVictim(wait_id):
                site.fail(wait_id)
            case None:
                pytest.fail("there is always a run that can be notified")
    pytest.fail("it goes on and on")


@given(sites())
def test_everyone_who_is_stuck_is_in_a_cycle_or_waits_for_one(site: Site) -> None:
    waits = site.snapshot().waits()
    stuck = stuck_in(waits)

    for node in stuck:
        steps = cycle_through(node, waits, stuck)
        assert steps[0][0] == node
        assert all(step[2] == following[0] for step, following in pairwise(steps))
        assert steps[-1][2] in {step[0] for step in steps}


def test_of_several_who_wait_for_a_place_only_all_holders_together_make_a_deadlock() -> None:
    place = Clause(("a", "b"), needed=1, is_held=True)

    assert stuck_in({"x": [place], "a": [Clause(("x",))]}) == set(), "b ends some day"
    assert stuck_in({"x": [place], "a": [Clause(("x",))], "b": [Clause(("x",))]}) == {"x", "a", "b"}


def test_the_run_whose_end_frees_most_is_the_victim_then_the_least_urgent_then_the_youngest() -> None:
    found = WaitSnapshot()
    found.others = {
        "task:a": [Clause(("wait:a",))],
        "task:b": [Clause(("wait:b",))],
        "wait:a": [Clause(("task:b",), is_held=True)],
        "wait:b": [Clause(("task:a",), is_held=True)],
    }
    knot = frozenset(found.others)
    found.waiters = {"task:a": Waiter(5, 1), "task:b": Waiter(5, 2)}
    assert resolution_of_knot(found, knot) == AwaitingVictim("b"), "the youngest"

    found.waiters = {"task:a": Waiter(6, 1), "task:b": Waiter(5, 2)}
    assert resolution_of_knot(found, knot) == AwaitingVictim("a"), "the least urgent"

    found.others |= {
        "task:c": [Clause(("wait:c",))],
        "wait:c": [Clause(("task:b",), is_held=True)],
        "wait:b": [Clause(("task:a",), is_held=True), Clause(("task:c",), is_held=True)],
    }
    found.waiters["task:c"] = Waiter(9, 9)
    knot = frozenset(found.others)
    assert resolution_of_knot(found, knot) == AwaitingVictim("b"), "no one else needs to fail then"
