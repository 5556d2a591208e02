"""What workers behind HTTP say. A run is named by its id, in the address, together with its task."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from ade.core.failure import ReportedKind
from ade.core.web.forms.tasks import Form, Line

MOST_CLAIMED, LONGEST_WAIT_S = 100, 20.0
LeaseSeconds = Annotated[float, Meta(ge=1, le=3_600)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Claim(Form, kw_only=True):
    """Take up to `count` tasks, by priority and age; what is not said is as the worker was registered.

    With a `request_id`, new for each claim, a claim whose answer got lost may be repeated: it has the same tasks. Names
    whose tasks are previewed are left to ADE's own workers, which make the preview anew before a run.
    """

    worker: Name
    names: Annotated[list[Name], Meta(max_length=1_000)] | None = None
    queues: Annotated[list[Name], Meta(max_length=100)] | None = None
    capabilities: Annotated[list[Name], Meta(max_length=100)] | None = None
    count: Annotated[int, Meta(ge=1, le=MOST_CLAIMED)] = 1
    lease_s: LeaseSeconds = 60.0
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S)] = 0.0  # seconds, if nothing is there
    request_id: Annotated[str, Meta(min_length=8, max_length=200)] | None = None


class RenewRuns(Form, kw_only=True):
    """A heartbeat, at least three times in each lease; also of a worker that has nothing to do."""

    worker: Name
    runs: Annotated[dict[str, str], Meta(max_length=1_000)] = field(default_factory=dict)  # run ids -> task ids
    lease_s: LeaseSeconds = 60.0
    draining: bool = False  # it claims no more


class OfRun(Form, kw_only=True):
    task_id: str


class CompleteRun(OfRun, kw_only=True):
    result: Any = None


class RunError(Form, kw_only=True):
    """What went wrong. The kind decides whether and when it is tried again, unless it is not `retryable`."""

    type: Annotated[str, Meta(min_length=1, max_length=200)]
    message: Line
    kind: ReportedKind = "raised"
    retryable: bool = True
    details: dict[str, Any] | None = None  # a traceback, say; up to 16,000 bytes


class FailRun(OfRun, kw_only=True):
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


class ReleaseRun(OfRun, kw_only=True):
    reason: Line = "handed back by its worker"


class Progress(OfRun, kw_only=True):
    progress: Any


class OutputText(Form, kw_only=True):
    text: Annotated[str, Meta(max_length=65_536)]
    stream: Annotated[str, Meta(min_length=1, max_length=20)] = "log"


class AppendOutput(OfRun, kw_only=True):
    lines: Annotated[list[OutputText], Meta(min_length=1, max_length=1_000)]
