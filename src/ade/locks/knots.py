"""Deadlocks among waits of every kind: locks, other tasks, concurrency limits, workers, and agents.

A run waits for locks (see `ade.locks.deadlocks`) and for other tasks; these wait for dependencies, locks, and a place
to run. A waiter for a place waits for *any* of the runs that have one, so a cycle is not always a deadlock: a task
behind a limit of two is stuck only if both runs that use it are. Everything is decided on one snapshot.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from ade.locks.deadlocks import (
    DeadlockVictimChoice,
    GrantReturn,
    QueueReorder,
    Resolution,
    edge_of,
    nearest_edges,
    requests_ahead,
)
from ade.locks.model import LockRequest

# The reduction: end every node that can end, repeatedly. The nodes that are left are stuck.


@dataclass(frozen=True, slots=True)
class Clause:
    """`needed` of these nodes must end first, or let go if they hold something. `what` is that thing, in words."""

    of: tuple[str, ...]
    what: str = ""
    needed: int = 1
    is_held: bool = False  # a member lets go of it when its run fails; otherwise its task must end
    line: tuple[str, str] | None = None  # the order of a wait queue: the waiting request and one ahead of it


Waits = Mapping[str, Sequence[Clause]]  # by node, all to be met; a node without an entry goes on by itself


def stuck_in(waits: Waits) -> set[str]:
    """Return the nodes that can never go on, however the others end."""
    users = defaultdict[str, list[tuple[str, int]]](list)
    missing, unmet = dict[tuple[str, int], int](), dict[str, int]()
    for node, clauses in waits.items():
        unmet[node] = len(clauses)
        for place, clause in enumerate(clauses):
            missing[node, place] = clause.needed
            for member in set(clause.of):
                users[member].append((node, place))
    free = [node for node, count in unmet.items() if not count]
    free += [member for member in users if member not in waits]
    gone = set(free)
    while free:
        for node, place in users[free.pop()]:
            missing[node, place] -= 1
            if missing[node, place] == 0:
                unmet[node] -= 1
                if not unmet[node] and node not in gone:
                    gone.add(node)
                    free.append(node)
    return waits.keys() - gone


def _blocked(waits: Waits, stuck: set[str], node: str) -> Iterator[tuple[Clause, str]]:
    """Yield what holds a stuck node back: each unmet clause with each of its stuck members."""
    for clause in waits[node]:
        members = dict.fromkeys(clause.of)
        if sum(member not in stuck for member in members) < clause.needed:
            yield from ((clause, member) for member in members if member in stuck)


def knots_in(waits: Waits, stuck: set[str]) -> list[frozenset[str]]:
    """Return the sets of stuck nodes that wait only for each other; every other stuck node waits for one of them."""
    after = {node: sorted({member for _, member in _blocked(waits, stuck, node)}) for node in stuck}
    return [
        knot
        for knot in _components(after)
        if all(member in knot for node in knot for member in after[node]) and any(after[node] for node in knot)
    ]


def _components(after: Mapping[str, Sequence[str]]) -> list[frozenset[str]]:
    """Return the strongly connected components (Tarjan, without recursion), in a fixed order."""
    index, low, on_stack = dict[str, int](), dict[str, int](), set[str]()
    stack, found = list[str](), list[frozenset[str]]()
    for root in sorted(after):
        work = [] if root in index else [(root, iter(after[root]))]
        while work:
            node, members = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            for member in members:
                if member not in index:
                    work.append((member, iter(after[member])))
                    break
                if member in on_stack:
                    low[node] = min(low[node], index[member])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    place = stack.index(node)
                    found.append(frozenset(stack[place:]))
                    on_stack.difference_update(stack[place:])
                    del stack[place:]
    return found


Step = tuple[str, Clause, str]  # a node, the clause that it waits for, and the member that keeps it from being met


def cycle_through(node: str, waits: Waits, stuck: set[str]) -> list[Step]:
    """Return a shortest cycle through this node, or else from it into a cycle; empty if it is not stuck."""
    if node not in stuck:
        return []
    path = _shortest(node, node, waits, stuck)
    if path:
        return path
    for knot in knots_in(waits, stuck):
        for entry in sorted(knot):
            way = _shortest(node, entry, waits, stuck)
            if way:
                return [*way, *_shortest(entry, entry, waits, stuck)]
    return []


def _shortest(start: str, end: str, waits: Waits, stuck: set[str]) -> list[Step]:
    reached: dict[str, list[Step]] = {start: []}
    frontier = [start]
    while frontier:
        following = []
        for here in frontier:
            for clause, member in sorted(_blocked(waits, stuck, here), key=lambda each: (each[1], each[0].what)):
                path = [*reached[here], (here, clause, member)]
                if member == end:
                    return path
                if member not in reached:
                    reached[member] = path
                    following.append(member)
        frontier = following
    return []


# The snapshot, and how to resolve a deadlock in it.


@dataclass(frozen=True, slots=True)
class AwaitingVictim:
    """Resolve the deadlock by failing a run where it waits for a task."""

    wait_id: str


@dataclass(frozen=True, slots=True)
class Waiter:
    """A run or program that waits. Of those that can be the victim, the least urgent and youngest one is chosen."""

    priority: int
    began_at: int


@dataclass(slots=True)
class WaitSnapshot:
    """Everything that was found to wait, and for what. Nodes are texts with a prefix, such as `task:` and an ID."""

    requests: dict[str, LockRequest] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)  # by request: the node that holds it or waits with it
    others: dict[str, list[Clause]] = field(default_factory=dict)  # all waits but those for locks
    waiters: dict[str, Waiter] = field(
        default_factory=dict
    )  # by node: those that wait in a process that can be notified
    texts: dict[str, str] = field(default_factory=dict)  # by node, for people

    def waits(self, requests: Mapping[str, LockRequest] | None = None) -> dict[str, list[Clause]]:
        """Return all waits; with other lock requests than those found, to try what a change of them would do."""
        requests = self.requests if requests is None else requests
        waits = {node: list(clauses) for node, clauses in self.others.items()}
        for edge in nearest_edges(requests.values()):
            waiter, blocker = requests[edge.waiter], self.nodes[edge.blocker]
            node = self.nodes[edge.waiter] if waiter.unattended else request_node(waiter.id)
            if node in waits:  # otherwise it was not reached
                line = None if edge.is_hard else (edge.waiter, edge.blocker)
                what = f"the lock on {resource_text(waiter, edge.resource)}"
                waits[node].append(Clause((blocker,), what, is_held=True, line=line))
        return waits

    def sentences(self, steps: Sequence[Step]) -> list[str]:
        """Return one sentence for each step of a cycle: who waits for what, and who has it."""
        lines, subject = list[str](), ""
        for node, clause, member in steps:
            subject = self.texts.get(node, subject)
            if clause.what:
                holder = self.texts.get(member)
                ahead = "behind {}" if clause.line else "held by {}"
                blocked_by = f", {ahead.format(holder)}" if clause.is_held and holder else ""
                lines.append(f"{subject} waits for {clause.what}{blocked_by}")
        return lines


def request_node(request_id: str) -> str:
    """Return the node of a wait for a lock in some process."""
    return f"request:{request_id}"


def resource_text(request: LockRequest, resource: str) -> str:
    """Return the resource, with its namespace unless that is the default one."""
    return resource if request.namespace == "default" else f"{resource} (namespace {request.namespace})"


def resolution_of_knot(snapshot: WaitSnapshot, knot: frozenset[str]) -> Resolution | AwaitingVictim | None:
    """Return how to open a knot at the least cost; None if no waiter in it can be notified.

    First, take locks back from a task that was granted them and is not claimed yet. Then, let a waiter pass others in
    its queue. Otherwise fail one run: the one whose end frees most, then the least urgent, then the youngest.
    """
    return _grant_to_return(snapshot, knot) or _waiter_to_pass(snapshot, knot) or _victim(snapshot, knot)


def _grant_to_return(snapshot: WaitSnapshot, knot: frozenset[str]) -> GrantReturn | None:
    for one in sorted(snapshot.requests.values(), key=lambda one: one.id):
        if one.is_granted and one.unattended and snapshot.nodes[one.id] in knot:
            others = {each.id: each for each in snapshot.requests.values() if each.id != one.id}
            if _is_open(knot, snapshot.waits(others)):
                return GrantReturn(one.id)
    return None


def _waiter_to_pass(snapshot: WaitSnapshot, knot: frozenset[str]) -> QueueReorder | None:
    requests, waits = snapshot.requests, snapshot.waits()
    lines = {clause.line for node in knot for clause in waits[node] if clause.line and clause.of[0] in knot}
    for waiter, blocker in sorted(lines):
        edge = edge_of(requests[waiter], requests[blocker], "", False)
        for other in requests_ahead(edge, requests):
            moved = structs.replace(requests[waiter], rank=requests[other].rank - 0.5)
            if _is_open(knot, snapshot.waits({**requests, waiter: moved})):
                return QueueReorder(waiter, other)
    return None


def _is_open(knot: frozenset[str], waits: Waits) -> bool:
    return knot.isdisjoint(stuck_in(waits))


_MOST_TRIED = 100


def _victim(snapshot: WaitSnapshot, knot: frozenset[str]) -> DeadlockVictimChoice | AwaitingVictim | None:
    waits = snapshot.waits()
    could = [node for node in knot if node in snapshot.waiters]
    could.sort(key=lambda node: _urgency(snapshot.waiters[node], node))
    left = {node: len(knot & stuck_in(_without(node, waits))) for node in could[:_MOST_TRIED]}
    if not left:
        return None
    node = min(left, key=lambda node: left[node])  # the first of equals
    wait = min(member for clause in waits[node] for member in clause.of if member in waits)
    kind, _, wait_id = wait.partition(":")
    return DeadlockVictimChoice(wait_id) if kind == "request" else AwaitingVictim(wait_id)


def _urgency(waiter: Waiter, node: str) -> tuple[int, int, str]:
    """Sort key: the least urgent first, then the youngest."""
    return (-waiter.priority, -waiter.began_at, node)


def _without(node: str, waits: Waits) -> dict[str, list[Clause]]:
    """Return the waits after a run has failed: it lets go of what it holds, and its task is still to be done."""
    return {each: list(_still_to_meet(clauses, node)) for each, clauses in waits.items()}


def _still_to_meet(clauses: Iterable[Clause], node: str) -> Iterator[Clause]:
    for clause in clauses:
        if not clause.is_held or node not in clause.of:
            yield clause
        elif clause.needed > 1:
            yield replace(clause, of=tuple(one for one in clause.of if one != node), needed=clause.needed - 1)
