"""Request and response types of workers behind HTTP, and helpers to interpret them."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from ade.errors import AdeError, PayloadTooLarge
from ade.failures import FailureKind, ReportedKind, TaskError
from ade.locks.model import LockItem
from ade.server.request_types import Capability, Form, Line, PageSize, QueueName
from ade.tasks.decisions import run_timeout_ms
from ade.tasks.lifecycle import Status
from ade.tasks.model import MOST_CAPABILITIES, Task
from ade.tasks.options import NewDefinition
from ade.tasks.outcomes import Failed, HoldResponse

# Requests. A run is identified by its ID, in the path, together with its task.


MOST_CLAIMED, LONGEST_WAIT_S = 100, 20.0
LeaseSeconds = Annotated[float, Meta(ge=1, le=3_600)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Claim(Form, kw_only=True):
    """Take up to `count` tasks, by priority and age; what is not said is as the worker was registered.

    With a `request_id`, new for each claim, a claim whose answer got lost may be repeated: it has the same tasks. Names
    whose tasks are previewed are left to ADE's own workers, which make the preview anew before a run.
    """

    json_names: ClassVar[Mapping[str, str]] = {"worker": "worker_id", "lease_s": "lease_ms"}

    worker: Name
    names: Annotated[list[Name], Meta(max_length=1_000)] | None = None
    queues: Annotated[list[Name], Meta(max_length=100)] | None = None
    capabilities: Annotated[list[Name], Meta(max_length=100)] | None = None
    count: Annotated[int, Meta(ge=1, le=MOST_CLAIMED)] = 1
    lease_s: LeaseSeconds = 60.0
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S)] = 0.0  # seconds to wait if there is no task
    request_id: Annotated[str, Meta(min_length=8, max_length=200)] | None = None


class RenewRuns(Form, kw_only=True):
    """A heartbeat, at least three times in each lease; also of a worker that has nothing to do."""

    json_names: ClassVar[Mapping[str, str]] = {"worker": "worker_id", "lease_s": "lease_ms"}

    worker: Name
    runs: Annotated[dict[str, str], Meta(max_length=1_000)] = field(default_factory=dict)  # run IDs -> task IDs
    lease_s: LeaseSeconds = 60.0
    draining: bool = False  # it no longer claims


class OfRun(Form, kw_only=True):
    """The task of a run."""

    task_id: str


class CompleteRun(OfRun, kw_only=True):
    """The result of a run."""

    result: Any = None


class CompletedRun(Form, kw_only=True):
    """The result of one of several runs."""

    run_id: Name
    task_id: str
    result: Any = None


MOST_COMPLETED = 100


class CompleteRuns(Form, kw_only=True):
    """The results of several runs of one account."""

    runs: Annotated[list[CompletedRun], Meta(min_length=1, max_length=MOST_COMPLETED)]


class RunError(Form, kw_only=True):
    """What went wrong. The kind decides whether and when it is tried again, unless it is not `retryable`."""

    type: Annotated[str, Meta(min_length=1, max_length=200)]
    message: Line
    kind: ReportedKind = "raised"
    retryable: bool = True
    details: dict[str, Any] | None = None  # for instance a traceback; up to 16,000 bytes


class FailRun(OfRun, kw_only=True):
    """Why a run failed, and when to retry."""

    error: RunError
    retry_after_s: Annotated[float, Meta(ge=0, le=31_536_000)] | None = None


class HoldRun(OfRun, kw_only=True):
    """Go on only if people have agreed to this step, and to what it is about.

    For the call of a tool (`is_tool`, the step is its name) the guard decides whether they must; it looks at `judged`
    where people are shown something else.
    """

    step: Annotated[str, Meta(min_length=1, max_length=200)]
    about: Any = None
    policies: Annotated[list[Name], Meta(max_length=20)] = field(default_factory=list)
    reason: Line = ""
    is_tool: bool = False
    judged: dict[str, Any] | UnsetType = UNSET
    responses: bool = False  # whether the handler reads responses; otherwise they are the error step_denied


class ReleaseRun(OfRun, kw_only=True):
    """Why a worker returns a task to the queue."""

    reason: Line = "handed back by its worker"


class Progress(OfRun, kw_only=True):
    """The progress of a run, as JSON."""

    progress: Any


class OutputText(Form, kw_only=True):
    """A line of output and its stream."""

    text: Annotated[str, Meta(max_length=65_536)]
    stream: Annotated[str, Meta(min_length=1, max_length=20)] = "log"


class AppendOutput(OfRun, kw_only=True):
    """Lines of output of a run."""

    lines: Annotated[list[OutputText], Meta(min_length=1, max_length=1_000)]


LARGEST_DETAILS = 16_000  # bytes; a traceback is truncated to half of that
GRACE_MS = 10_000  # for a run to end after its timeout, before its lease is no longer renewed


class RunGrant(Struct, frozen=True, kw_only=True):
    """A task to be run now. Its arguments are whole; `locks` are those it holds, with their fencing tokens."""

    run_id: str
    task: Task
    lease_ms: int
    timeout_ms: int | None = None  # of this run; report it as `timed_out` after that
    locks: tuple[LockItem, ...] = ()


class Claimed(Struct, frozen=True, kw_only=True):
    """The runs that were granted to the worker."""

    runs: list[RunGrant]


class GoneRun(Struct, frozen=True, kw_only=True):
    """A run that holds its task no more: end it. Its task is in this status now; without one it does not exist."""

    run_id: str
    task_id: str
    status: Status | None = None


class RemoteRunsRenewed(Struct, frozen=True, kw_only=True):
    """Runs that are not named here are kept for another lease."""

    gone: list[GoneRun]
    late: list[str]  # exceeded their timeout and are no longer renewed: report them as `timed_out`
    lock_lost: list[str]  # no longer protected by their locks: report a failure; results are rejected


class RunEnd(Struct, frozen=True, kw_only=True):
    """What became of the task."""

    task_id: str
    run_id: str
    status: Status
    run_after: int = 0  # when it is retried, if it is


class CompletionReport(Struct, frozen=True, kw_only=True):
    """What became of the task of one of several runs, or the error by which its result was rejected."""

    task_id: str
    run_id: str
    status: Status | None = None
    code: str = ""
    error: str = ""


class RunHold(Struct, frozen=True, kw_only=True):
    """Whether the run may go on. If not it is over, and the task runs again from the start once people have agreed."""

    may_go_on: bool
    task_id: str
    status: Status
    response: HoldResponse | None = None  # what people decided, if the run may go on


def run_ids(account: str, request_id: str, look: int, count: int) -> list[str]:
    """Return the run IDs of a repeatable claim: the same for the same request, and unique to the account."""
    text = f"{account}\n{look}\n{request_id}".encode(errors="backslashreplace")
    return [hashlib.sha256(text + b"\n%d" % number).hexdigest()[:32] for number in range(count)]


def is_late(task: Task, *, now: int) -> bool:
    """Whether its run has exceeded its timeout and the grace period after it."""
    limit_ms = run_timeout_ms(task)
    return limit_ms is not None and task.started_at is not None and now > task.started_at + limit_ms + GRACE_MS


def failure_of(body: FailRun, *, details_size: int) -> Failed:
    """Convert a reported failure to an outcome. Raises PayloadTooLarge for details that are too large."""
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
    """Return the response for a run that has ended."""
    due = task.run_after if task.status is Status.PENDING else 0
    return RunEnd(task_id=task.id, run_id=task.run_id or "", status=task.status, run_after=due)


def report_of(task_id: str, run_id: str | None, result: Task | AdeError) -> CompletionReport:
    """Return the report on one of several runs: its task after it, or the error."""
    if isinstance(result, Task):
        return CompletionReport(task_id=task_id, run_id=run_id or "", status=result.status)
    return CompletionReport(task_id=task_id, run_id=run_id or "", code=result.code, error=result.detail)


def has_failed_so(task: Task, run_id: str, failed: Failed) -> bool:
    """Whether this failure was already recorded, so that the report is a repetition."""
    is_over = task.status in (Status.PENDING, Status.FAILED)
    return is_over and task.run_id == run_id and task.error == failed.error


# Registration: what workers behind HTTP report about themselves and their tasks.


Text = Annotated[str, Meta(max_length=200)]


class ListWorkers(Form):
    """A page of the workers."""

    cursor: str | None = None
    limit: PageSize = 50


class RegisterWorker(Form):
    """A worker must be heard of within `ttl` seconds, again and again, or else it is silent."""

    definitions: Annotated[list[NewDefinition], Meta(max_length=500)] = field(default_factory=list)
    queues: Annotated[list[QueueName], Meta(max_length=100)] = field(default_factory=list)  # empty: all
    capabilities: Annotated[list[Capability], Meta(max_length=MOST_CAPABILITIES)] = field(default_factory=list)
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 1
    agent: Annotated[str, Meta(max_length=100)] | None = None  # the agent whose capacity its runs use
    hostname: Text | None = None  # default: the client address
    pid: Annotated[int, Meta(ge=0, le=2**31)] = 0
    version: Text = ""
    draining: bool = False  # it claims nothing new
    ttl: Annotated[float, Meta(ge=5, le=3_600)] = 60.0
