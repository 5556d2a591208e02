"""Converts task records to rows and back. Only this module defines which table stores which field of a task."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import apsw
import msgspec
from msgspec import Raw, structs

from ade.failures import unreadable_record
from ade.stores.sqlite.connection import run, value
from ade.tasks.changes import Change
from ade.tasks.lifecycle import CLAIMABLE, FINAL, Status
from ade.tasks.model import LABELED_FIELDS, Task, as_text, labels_of

COLUMN_FIELDS = [
    "id",
    "queue",
    "name",
    "status",
    "priority",
    "run_after",
    "deadline",
    "version",
    "generation",
    "attempt",
    "run_id",
    "worker_id",
    "lease_until",
    "waiting_on",
    "created_at",
    "updated_at",
    "started_at",
    "finished_at",
    "discarded",
]
OUTCOME_FIELDS = [
    "result",
    "result_expired",
    "error",
    "reason",
    "exit_code",
    "output_ref",
    "timeouts",
    "throttles",
    "submitted_at",
    "approved_at",
]
PROGRESS_FIELDS = ["progress"]
IDENTITY_FIELDS = [
    "queue",
    "name",
    "parent_id",
    "idempotency_key",
    "args_digest",
    "concurrency_key",
    "needs",
]  # changed only by edits
DETAIL_FIELDS = [
    name
    for name in Task.__struct_fields__
    if name not in COLUMN_FIELDS and name not in OUTCOME_FIELDS and name not in PROGRESS_FIELDS
]


def _part(name: str, fields: Sequence[str]) -> type[msgspec.Struct]:
    """Define a struct of some task fields that omits default values when it is encoded."""
    known = {field.name: field for field in structs.fields(Task)}
    specs = [(field, known[field].type, known[field].default) for field in fields]
    return msgspec.defstruct(name, specs, omit_defaults=True, frozen=True)


_detail_of, _outcome_of = attrgetter(*DETAIL_FIELDS), attrgetter(*OUTCOME_FIELDS)
_Detail, _Outcome = _part("Detail", DETAIL_FIELDS), _part("Outcome", OUTCOME_FIELDS)
_NO_OUTCOME = _Outcome()
_encoder = msgspec.json.Encoder()
_tasks = msgspec.json.Decoder(list[Task])
_task = msgspec.json.Decoder(Task)


def packed(value: object) -> str:
    """Encode a parameter of a batched statement as JSON text."""
    return _encoder.encode(value).decode()


def unpacked(text: object) -> Any:
    """Decode a JSON column; None if it is NULL."""
    return msgspec.json.decode(text) if isinstance(text, str | bytes) else None


def raw(text: str | None) -> Raw | None:
    """Wrap JSON text as a msgspec Raw; None stays None."""
    return None if text is None else Raw(text.encode())


def read_task(record: str | bytes) -> Task:
    """Decode one task record. Raises one of UNREADABLE."""
    return _task.decode(record)


def read_tasks(records: bytes) -> list[Task]:
    """Decode a JSON array of task records. Raises one of UNREADABLE."""
    return _tasks.decode(records)


def stage_of(task: Task, *, now: int, waiting: int) -> str | None:
    """Return the stage of a claimable task: blocked, delayed, or ready. None if it is not claimable."""
    if task.status not in CLAIMABLE:
        return None
    if waiting:
        return "blocked"
    return "delayed" if task.run_after > now else "ready"


def new_row(task: Task, seq: int, *, now: int, waiting: int) -> tuple[object, ...]:
    """Parameters of tasks.insert."""
    return (
        seq,
        task.id,
        task.queue,
        task.name,
        task.status,
        stage_of(task, now=now, waiting=waiting),
        task.priority,
        task.run_after,
        task.deadline,
        waiting,
        task.created_at,
        task.parent_id,
        task.idempotency_key,
        task.args_digest,
        task.concurrency_key,
    )


def detail_of(task: Task) -> msgspec.Struct:
    """Return the fields stored in the detail table."""
    return _Detail(*_detail_of(task))


def labels_in(task: Task) -> list[str]:
    """Return the labels by which a task is found; a task without these fields has none."""
    is_labeled = task.author_id is not None or task.tags or task.resources or task.locks
    labels = labels_of(task) if is_labeled else []
    if task.team is not None:
        labels.append(f"team:{task.team}")
    if task.ticket_ref is not None:
        labels.append(f"ticket:{task.ticket_ref}")
    return labels


def touches_labels(change: Change) -> bool:
    """Return whether a change sets fields by which a task is found, as the edit of a draft does."""
    return not LABELED_FIELDS.isdisjoint(change.fields)


def outcome_of(task: Task) -> msgspec.Struct | None:
    """Return the fields that runs set, or None if all of them have their default."""
    outcome = _Outcome(*_outcome_of(task))
    return None if outcome == _NO_OUTCOME else outcome


def touches_outcome(change: Change) -> bool:
    """Return whether a change sets fields of the outcome table."""
    return not _OUTCOME_SET.isdisjoint(change.fields)


def touches_detail(change: Change) -> bool:
    """Return whether a change sets fields of the detail table."""
    return not _DETAIL_SET.isdisjoint(change.fields)


def touches_identity(change: Change) -> bool:
    """Return whether a change sets indexed fields that only edits change."""
    return not _IDENTITY_SET.isdisjoint(change.fields)


_OUTCOME_SET, _DETAIL_SET = frozenset(OUTCOME_FIELDS), frozenset(DETAIL_FIELDS)
_IDENTITY_SET = frozenset(IDENTITY_FIELDS)


def result_expiry(task: Task) -> int | None:
    """Return when the result of a completed task expires; None if it does not."""
    if task.result is None or task.result_ttl_ms is None or task.finished_at is None:
        return None
    return task.finished_at + task.result_ttl_ms


def changed_row(change: Change, seq: int, *, now: int, waiting: int) -> tuple[object, ...]:
    """Parameters of tasks.update. A task that was running was due, even if the wall clock was set back since."""
    after = change.after
    was_due = change.before.status is Status.RUNNING and "run_after" not in change.fields
    return (
        seq,
        after.status,
        stage_of(after, now=after.run_after if was_due else now, waiting=waiting),
        after.priority,
        after.run_after,
        after.deadline,
        after.generation,
        after.attempt,
        after.run_id,
        after.worker_id,
        after.lease_until,
        after.updated_at,
        after.started_at,
        after.finished_at,
        after.discarded,
    )


def identity_row(change: Change, seq: int) -> tuple[object, ...]:
    """Parameters of tasks.update_identity."""
    *own, needs = (getattr(change.after, field) for field in IDENTITY_FIELDS)
    return (seq, *own, as_text(needs) or None)


def is_end_of_run(change: Change) -> bool:
    """Return whether a run reports its end and changes only the usual fields: by far the most frequent change."""
    after, guard = change.after, change.guard
    return (
        guard.run_id is not None
        and guard.version is None
        and guard.lease_until is None
        and after.status in FINAL
        and after.finished_at is not None
        and after.worker_id is None
        and after.lease_until is None
        and change.fields <= _END_SET
    )


_END_SET = _OUTCOME_SET | {"worker_id", "lease_until", "finished_at"}


def ended_row(change: Change) -> tuple[object, ...]:
    """Parameters of tasks.finish_runs."""
    after = change.after
    return (after.id, change.guard.run_id, after.status, after.updated_at, after.finished_at)


def guard_row(change: Change) -> tuple[object, ...]:
    """Parameters of tasks.check_guards."""
    guard = change.guard
    return (change.before.id, guard.version, guard.run_id, guard.lease_until)


# An unreadable record is returned with its readable columns, and never prevents other records from being read.
UNREADABLE = (msgspec.MsgspecError, RecursionError)  # RecursionError: JSON nested too deeply for the decoder


def read_records(connection: apsw.Connection, statement: str, /, **bindings: Any) -> list[Task]:
    """Return the tasks of a statement whose rows are (seq, record)."""
    return [task_of(connection, seq, record) for seq, record in run(connection, statement, **bindings)]


def task_of(connection: apsw.Connection, seq: int, record: bytes) -> Task:
    """Decode a task, or return its readable columns if the record is damaged."""
    try:
        return read_task(record)
    except UNREADABLE as error:
        return remains_of(connection, seq, str(error))


def remains_of(connection: apsw.Connection, seq: int, why: str) -> Task:
    """Return a damaged task with its readable columns only: its arguments and outcome are unreadable."""
    return structs.replace(read_task(value(connection, "tasks.get_damaged", seq=seq)), error=unreadable_record(why))
