"""Decided changes are written: each commit whole or not at all, many commits in one transaction."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import apsw

from ade.core.change import Change
from ade.core.errors import StaleLease, StaleWrite, UnknownTask
from ade.core.lifecycle import FINAL, Status
from ade.core.records import Task
from ade.stores.sqlite.codec import (
    changed_row,
    detail_of,
    guard_row,
    outcome_of,
    packed,
    result_expiry,
    touches_detail,
    touches_outcome,
    unpacked,
)
from ade.stores.sqlite.statements import run, value
from ade.stores.sqlite.transactions import Operation


class Commit(Operation):
    """Changes of one caller. `together`: all or none, and a refusal is raised; else each has its own answer."""

    __slots__ = ("changes", "now", "together")

    def __init__(self, changes: Sequence[Change], together: bool, now: Callable[[], int]) -> None:
        super().__init__()
        self.changes = changes
        self.together = together
        self.now = now

    @classmethod
    def run_group(cls, connection: apsw.Connection, group: Sequence["Commit"]) -> None:
        """Commits that touch a record another one of the group has touched wait for a second round."""
        waiting = list(group)
        while waiting:
            touched: set[str] = set()
            this_round, later = [], []
            for commit in waiting:
                ids = [change.task_id for change in commit.changes]
                if touched.isdisjoint(ids) and len(set(ids)) == len(ids):
                    touched.update(ids)
                    this_round.append(commit)
                elif len(set(ids)) != len(ids):
                    commit.refusal = StaleWrite("one commit changes the same task twice")
                else:
                    later.append(commit)
            _run_round(connection, this_round)
            waiting = later


@dataclass(slots=True)
class _Found:
    """A record as it is now."""

    seq: int
    status: Status
    run_id: str | None
    waiting: int


def _run_round(connection: apsw.Connection, commits: Sequence[Commit]) -> None:
    changes = [change for commit in commits for change in commit.changes]
    if not changes:
        return
    rows = unpacked(value(connection, "check_guards", rows=packed([guard_row(c) for c in changes])))
    accepted: list[tuple[Change, _Found]] = []
    position = 0
    for commit in commits:
        found = rows[position : position + len(commit.changes)]
        position += len(commit.changes)
        verdicts = [_verdict(change, row) for change, row in zip(commit.changes, found, strict=True)]
        refusals = [verdict for verdict in verdicts if isinstance(verdict, Exception)]
        if commit.together and refusals:
            commit.refusal = refusals[0]
            continue
        commit.answer = [verdict if isinstance(verdict, StaleWrite) else None for verdict in verdicts]
        accepted += [
            (change, verdict)
            for change, verdict in zip(commit.changes, verdicts, strict=True)
            if isinstance(verdict, _Found)
        ]
    if accepted:
        _write(connection, accepted, commits[0].now())


def _verdict(change: Change, row: list[object]) -> _Found | StaleWrite | UnknownTask | None:
    """The record, if the guard holds; None when this very change was written before; else the refusal."""
    seq, status, run_id, waiting, holds = row
    if seq is None:
        return UnknownTask(f"task {change.task_id} does not exist (any more)")
    if holds:
        assert isinstance(seq, int)
        assert isinstance(waiting, int)
        return _Found(seq, Status(str(status)), run_id if isinstance(run_id, str) else None, waiting)
    if change.guard.run_id is None:
        return StaleWrite(f"task {change.task_id} changed while you were deciding; it is {status} now")
    if run_id == change.guard.run_id and status == change.after.status:
        return None
    return StaleLease(f"run {change.guard.run_id} no longer holds task {change.task_id}; it is {status} now")


def _write(connection: apsw.Connection, accepted: list[tuple[Change, _Found]], now: int) -> None:
    rows = [changed_row(change, found.seq, now=now, waiting=found.waiting) for change, found in accepted]
    run(connection, "update_task", rows=packed(rows))
    outcomes = [
        (found.seq, outcome_of(change.after), result_expiry(change.after))
        for change, found in accepted
        if touches_outcome(change)
    ]
    if outcomes:
        run(connection, "upsert_outcome", rows=packed(outcomes))
    details = [(found.seq, detail_of(change.after)) for change, found in accepted if touches_detail(change)]
    if details:
        run(connection, "update_detail", rows=packed(details))
    events = [
        (event.type, event.at, found.seq, event.task_id, event.actor, event.payload)
        for change, found in accepted
        for event in change.events
    ]
    run(connection, "insert_event", rows=packed(events))
    move_tallies(connection, [(change.before, found.status, change.after.status) for change, found in accepted])
    _settle_dependents(connection, accepted, now)
    _free_keys(connection, accepted)


def move_tallies(connection: apsw.Connection, moves: Sequence[tuple[Task, Status, Status]]) -> None:
    differences: Counter[tuple[str, str, Status]] = Counter()
    for task, before, after in moves:
        differences[task.queue, task.name, before] -= 1
        differences[task.queue, task.name, after] += 1
    rows = [(*lane, difference) for lane, difference in differences.items() if difference]
    if rows:
        run(connection, "move_tally", rows=packed(rows))


def _settle_dependents(connection: apsw.Connection, accepted: list[tuple[Change, _Found]], now: int) -> None:
    """What waited for tasks that ended now stands in line, or is marked for the sweep that decides on it."""
    ended = [
        (found.seq, change.after.status is Status.COMPLETED)
        for change, found in accepted
        if change.after.status in FINAL and found.status not in FINAL
    ]
    if not ended:
        return
    in_vain = packed([found.seq for change, found in accepted if change.after.status in FINAL and found.waiting])
    if in_vain != "[]":
        run(connection, "drop_edges", seqs=in_vain)
        run(connection, "clear_waiting", seqs=in_vain)
    met = Counter(seq for (seq,) in run(connection, "meet_dependencies", rows=packed(ended)))
    if met:
        run(connection, "unblock", rows=packed(list(met.items())), now=now)
    failed = [seq for seq, completed in ended if not completed]
    if failed:
        run(connection, "break_dependencies", rows=packed(failed))


def _free_keys(connection: apsw.Connection, accepted: list[tuple[Change, _Found]]) -> None:
    """A run that ended frees its concurrency key for the next in line."""
    for change, found in accepted:
        key = change.before.concurrency_key
        if key is not None and found.status is Status.RUNNING:
            run(connection, "unpark_next", name=change.before.name, key=key)
