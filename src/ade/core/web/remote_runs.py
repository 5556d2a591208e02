"""Runs of workers behind HTTP: what they are told, and what their words mean."""

import hashlib

from msgspec import Struct

from ade.core.errors import PayloadTooLarge
from ade.core.failure import FailureKind, TaskError
from ade.core.lifecycle import Status
from ade.core.locks.records import LockItem
from ade.core.outcome import Failed
from ade.core.records import Task
from ade.core.task import run_timeout_ms
from ade.core.web.forms.work import FailRun

LARGEST_DETAILS = 16_000  # bytes; a traceback is cut at half of that
GRACE_MS = 10_000  # for a run to end once its time is over, before its lease is kept no more


class RunGrant(Struct, frozen=True, kw_only=True):
    """A task to be run now. Its arguments are whole; `locks` are those it holds, with their fencing tokens."""

    run_id: str
    task: Task
    lease_ms: int
    timeout_ms: int | None = None  # of this run; fail it as `timed_out` then
    locks: tuple[LockItem, ...] = ()


class Claimed(Struct, frozen=True, kw_only=True):
    runs: list[RunGrant]


class GoneRun(Struct, frozen=True, kw_only=True):
    """A run that holds its task no more: end it. Its task is in this status now; without one it does not exist."""

    run_id: str
    task_id: str
    status: Status | None = None


class Renewed(Struct, frozen=True, kw_only=True):
    """Runs that are not named here are kept for another lease."""

    gone: list[GoneRun]
    late: list[str]  # they took longer than they may: they are kept no more, fail them as `timed_out`
    lock_lost: list[str]  # nothing protects any more what they do: fail them; their results are not taken


class RunEnd(Struct, frozen=True, kw_only=True):
    """What became of the task."""

    task_id: str
    run_id: str
    status: Status
    run_after: int = 0  # when it is tried again, if it is


class RunHeld(Struct, frozen=True, kw_only=True):
    """Whether the run may go on. If not it is over, and the task runs again from the start once people have agreed."""

    may_go_on: bool
    task_id: str
    status: Status


def run_ids(account: str, request_id: str, look: int, count: int) -> list[str]:
    """Ids of the runs of a claim that may be repeated: the same for the same request, and nobody else's."""
    text = f"{account}\n{look}\n{request_id}".encode(errors="backslashreplace")
    return [hashlib.sha256(text + b"\n%d" % number).hexdigest()[:32] for number in range(count)]


def is_late(task: Task, *, now: int) -> bool:
    """Whether its run is beyond its time-out, and the time to end after that."""
    limit_ms = run_timeout_ms(task)
    return limit_ms is not None and task.started_at is not None and now > task.started_at + limit_ms + GRACE_MS


def failure_of(body: FailRun, *, details_size: int) -> Failed:
    """Raises PayloadTooLarge for details that nobody would read."""
    error = body.error
    if details_size > LARGEST_DETAILS:
        raise PayloadTooLarge(f"details of an error have at most {LARGEST_DETAILS:,} bytes, not {details_size:,}")
    told = TaskError(
        kind=FailureKind(error.kind),
        type=error.type,
        message=error.message,
        retryable=error.retryable,
        details=error.details,
    )
    return Failed(told, None if body.retry_after_s is None else round(body.retry_after_s * 1000))


def end_of(task: Task) -> RunEnd:
    due = task.run_after if task.status is Status.PENDING else 0
    return RunEnd(task_id=task.id, run_id=task.run_id or "", status=task.status, run_after=due)


def has_failed_so(task: Task, run_id: str, failed: Failed) -> bool:
    """Whether this very failure was taken before, so that somebody only repeats it."""
    is_over = task.status in (Status.PENDING, Status.FAILED)
    return is_over and task.run_id == run_id and task.error == failed.error
