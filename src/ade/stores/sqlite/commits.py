"""Writes decided task changes: each commit is atomic, and many commits share one transaction."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import apsw

from ade.errors import StaleLease, StaleWrite
from ade.stores.sqlite.codec import (
    changed_row,
    detail_of,
    ended_row,
    guard_row,
    identity_row,
    is_end_of_run,
    labels_in,
    outcome_of,
    packed,
    result_expiry,
    touches_detail,
    touches_identity,
    touches_labels,
    touches_outcome,
    unpacked,
)
from ade.stores.sqlite.connection import run, value
from ade.stores.sqlite.writer import WriteOperation
from ade.tasks.changes import Change
from ade.tasks.lifecycle import CLAIMABLE, FINAL, Status


class CommitOperation(WriteOperation):
    """Changes of one caller. With `together`, all or none are written, or it raises; else each has its own answer.

    `frees_work` is True afterwards if the changes made waiting tasks claimable.
    """

    __slots__ = ("changes", "frees_work", "now", "together")

    def __init__(self, changes: Sequence[Change], together: bool, now: Callable[[], int]) -> None:
        super().__init__()
        self.changes = changes
        self.together = together
        self.now = now
        self.frees_work = False

    @classmethod
    def run_group(cls, connection: apsw.Connection, group: Sequence["CommitOperation"]) -> None:
        """Write the group in rounds: changes to a record that this round already changes wait for the next round."""
        waiting = [part for commit in group for part in _parts(commit)]
        while waiting:
            touched: set[str] = set()
            this_round: list[_CommitPart] = []
            later: list[_CommitPart] = []
            for part in waiting:
                (this_round if touched.isdisjoint(part.ids) else later).append(part)
                touched.update(part.ids)
            _run_round(connection, this_round)
            waiting = later


@dataclass(slots=True)
class _CommitPart:
    """Changes of one commit to distinct records. Usually these are all its changes."""

    commit: CommitOperation
    positions: list[int]

    @property
    def changes(self) -> Sequence[Change]:
        if len(self.positions) == len(self.commit.changes):
            return self.commit.changes
        return [self.commit.changes[position] for position in self.positions]

    @property
    def ids(self) -> list[str]:
        return [change.before.id for change in self.changes]

    def without(self, written: set[int]) -> "_CommitPart":
        """Return this part without the changes that are already written, given by `id()`."""
        changes = self.commit.changes
        return _CommitPart(
            self.commit, [position for position in self.positions if id(changes[position]) not in written]
        )


def _parts(commit: CommitOperation) -> list[_CommitPart]:
    commit.answer = [None] * len(commit.changes)
    rounds: list[list[int]] = []
    seen: Counter[str] = Counter()
    for position, change in enumerate(commit.changes):
        if seen[change.task_id] == len(rounds):
            rounds.append([])
        rounds[seen[change.task_id]].append(position)
        seen[change.task_id] += 1
    if commit.together and len(rounds) > 1:
        commit.refusal = StaleWrite("one commit changes the same task twice; nothing was written")
        return []
    return [_CommitPart(commit, positions) for positions in rounds]


@dataclass(slots=True)
class _CurrentRecord:
    """The stored state of a task record."""

    seq: int
    status: Status
    run_id: str | None
    waiting: int


Accepted = list[tuple[Change, _CurrentRecord]]


def _run_round(connection: apsw.Connection, parts: Sequence[_CommitPart]) -> None:
    ended, parts_left = _end_runs(connection, parts)
    accepted = _check(connection, parts_left) if parts_left else []
    if (ended or accepted) and _write(connection, ended, accepted, parts[0].commit.now()):
        for part in parts:
            part.commit.frees_work = True


def _end_runs(connection: apsw.Connection, parts: Sequence[_CommitPart]) -> tuple[Accepted, list[_CommitPart]]:
    """Write independent ends of runs whose guard holds in one statement. Also returns the remaining parts."""
    ends = [change for part in parts if not part.commit.together for change in part.changes if is_end_of_run(change)]
    if not ends:
        return [], list(parts)
    rows = run(connection, "tasks.finish_runs", rows=packed([ended_row(change) for change in ends]))
    found = {task_id: _CurrentRecord(seq, Status.RUNNING, run_id, waiting) for task_id, seq, run_id, waiting in rows}
    if len(found) == len(ends):
        ended = [(change, found[change.task_id]) for change in ends]
    else:
        ended = [(change, found[change.task_id]) for change in ends if change.task_id in found]
    if len(ended) == sum(len(part.positions) for part in parts):
        return ended, []
    written = {id(change) for change, _ in ended}
    return ended, [left for part in parts if (left := part.without(written)).positions]


def _check(connection: apsw.Connection, parts: Sequence[_CommitPart]) -> Accepted:
    guards = packed([guard_row(change) for part in parts for change in part.changes])
    rows = iter(unpacked(value(connection, "tasks.check_guards", rows=guards)))
    accepted: Accepted = []
    for part in parts:
        verdicts = [(change, _verdict(change, next(rows))) for change in part.changes]
        refusals = [verdict for _, verdict in verdicts if isinstance(verdict, StaleWrite)]
        if part.commit.together and refusals:
            part.commit.refusal = refusals[0]
            continue
        for position, (change, verdict) in zip(part.positions, verdicts, strict=True):
            if isinstance(verdict, _CurrentRecord):
                accepted.append((change, verdict))
            else:
                part.commit.answer[position] = verdict
    return accepted


def _verdict(change: Change, row: list[object]) -> _CurrentRecord | StaleWrite | None:
    """Return the record if the guard holds, None if this same change was already written, else the error."""
    seq, status, run_id, waiting, holds = row
    if seq is None:
        refusal = StaleWrite if change.guard.run_id is None else StaleLease
        return refusal(f"task {change.task_id} no longer exists; nothing was written")
    if holds:
        assert isinstance(seq, int)
        assert isinstance(waiting, int)
        return _CurrentRecord(seq, Status(str(status)), run_id if isinstance(run_id, str) else None, waiting)
    if change.guard.run_id is None:
        return StaleWrite(f"task {change.task_id} changed while you were deciding; it is {status} now")
    if run_id == change.guard.run_id and status == change.after.status:
        return None
    return StaleLease(f"run {change.guard.run_id} no longer holds task {change.task_id}; it is {status} now")


def _write(connection: apsw.Connection, ended: Accepted, others: Accepted, now: int) -> bool:
    """Write all tables (columns of `ended` are already written). Returns whether waiting tasks became claimable."""
    if others:
        _write_columns(connection, others, now)
    outcomes = ended + [(change, found) for change, found in others if touches_outcome(change)]
    if outcomes:
        rows = [(found.seq, outcome_of(change.after), result_expiry(change.after)) for change, found in outcomes]
        run(connection, "tasks.put_outcome", rows=packed(rows))
    accepted = ended + others
    events = [
        (event.type, event.at, found.seq, event.task_id, event.actor, event.payload)
        for change, found in accepted
        for event in change.events
    ]
    run(connection, "events.insert", rows=packed(events))
    _move_tallies(connection, accepted)
    unblocked = _settle_dependents(connection, accepted, now)
    unparked = _free_keys(connection, accepted)
    return unblocked or unparked


def _write_columns(connection: apsw.Connection, accepted: Accepted, now: int) -> None:
    rows = [changed_row(change, found.seq, now=now, waiting=found.waiting) for change, found in accepted]
    run(connection, "tasks.update", rows=packed(rows))
    details = [(found.seq, detail_of(change.after)) for change, found in accepted if touches_detail(change)]
    if details:
        run(connection, "tasks.update_detail", rows=packed(details))
    if labeled := [(change, found.seq) for change, found in accepted if touches_labels(change)]:
        run(connection, "tasks.prune_labels", seqs=packed([seq for _, seq in labeled]))
        labels = [(label, seq) for change, seq in labeled for label in labels_in(change.after)]
        run(connection, "tasks.insert_labels", rows=packed(labels))
    identities = [identity_row(change, found.seq) for change, found in accepted if touches_identity(change)]
    if identities:
        run(connection, "tasks.update_identity", rows=packed(identities))


def _move_tallies(connection: apsw.Connection, accepted: Accepted) -> None:
    differences = Counter([(change.after.queue, change.after.name, change.after.status) for change, _ in accepted])
    differences.subtract([(change.before.queue, change.before.name, found.status) for change, found in accepted])
    rows = [(*lane, difference) for lane, difference in differences.items() if difference]
    if rows:
        run(connection, "queues.update_status_counts", rows=packed(rows))


def _settle_dependents(connection: apsw.Connection, accepted: Accepted, now: int) -> bool:
    """Unblock the dependents of completed tasks, and mark those of failed tasks for the sweep that decides on them."""
    revived = [found.seq for change, found in accepted if found.status in FINAL and not change.after.is_final]
    if revived:
        _revive(connection, revived)
    ended = [
        (found.seq, change.after.status is Status.COMPLETED)
        for change, found in accepted
        if change.after.status in FINAL and found.status not in FINAL
    ]
    if not ended:
        return False
    in_vain = packed([found.seq for change, found in accepted if change.after.status in FINAL and found.waiting])
    if in_vain != "[]":
        run(connection, "dependencies.delete", seqs=in_vain)
        run(connection, "dependencies.clear_waiting", seqs=in_vain)
    if not value(connection, "dependencies.any"):
        return False
    met = Counter(seq for (seq,) in run(connection, "dependencies.meet", rows=packed(ended)))
    if met:
        run(connection, "dependencies.unblock_tasks", rows=packed(list(met.items())), now=now)
    failed = [seq for seq, completed in ended if not completed]
    if failed:
        run(connection, "dependencies.break", rows=packed(failed))
    return bool(met)


def _revive(connection: apsw.Connection, revived: list[int]) -> None:
    """Repair the broken dependents of tasks that left a final state, and block these tasks on open dependencies."""
    hopeful = [seq for (seq,) in run(connection, "dependencies.repair", rows=packed(revived))]
    if hopeful:
        run(connection, "tasks.bump_versions", seqs=packed(hopeful))
    waiting = Counter(seq for (seq,) in run(connection, "dependencies.rebuild", seqs=packed(revived)))
    if waiting:
        run(connection, "dependencies.block_tasks", rows=packed(list(waiting.items())))


def _free_keys(connection: apsw.Connection, accepted: Accepted) -> bool:
    """Unpark the next task of a concurrency key when a run of that key ends, or a waiting task of it changes: it ends,
    starts later, or has another priority, so that another one can be the first."""
    freed = False
    for change, found in accepted:
        key = change.before.concurrency_key
        if key is not None and (found.status is Status.RUNNING or found.status in CLAIMABLE):
            run(connection, "claims.unpark_next", name=change.before.name, key=key)
            freed = True
    return freed
