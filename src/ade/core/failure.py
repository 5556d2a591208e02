"""What each kind of failure leads to. The whole policy is this one table."""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Literal

from msgspec import Struct, structs

ReportedKind = Literal[
    "raised",
    "retry_asked",
    "rate_limited",
    "timed_out",
    "unrecoverable",
    "bad_arguments",
    "bad_result",
    "out_of_memory",
]  # what whoever carries out a run may say of its failure


class FailureKind(StrEnum):
    RAISED = auto()  # the handler raised, or an agent exited non-zero
    RETRY_ASKED = auto()  # the handler raised Retry
    WORKER_DIED = auto()  # the lease ran out
    UNRECOVERABLE = auto()  # the handler raised Unrecoverable
    BAD_ARGUMENTS = auto()  # the stored arguments do not fit the handler
    BAD_RESULT = auto()  # the handler returned what it does not declare, or more than the hard limit
    UNKNOWN_NAME = auto()  # no handler of that name
    TIMED_OUT = auto()
    RATE_LIMITED = auto()
    OUT_OF_MEMORY = auto()
    DEPENDENCY_FAILED = auto()
    DEADLINE_PASSED = auto()
    DENIED = auto()  # a guard rule forbids it


class FailurePolicy(Struct, frozen=True, kw_only=True):
    retry: bool
    counts: bool = True  # uses up an attempt
    grows_timeout: bool = False
    alert: bool = False


FAILURES: Mapping[FailureKind, FailurePolicy] = {
    FailureKind.RAISED: FailurePolicy(retry=True),
    FailureKind.RETRY_ASKED: FailurePolicy(retry=True),
    FailureKind.WORKER_DIED: FailurePolicy(retry=True),
    FailureKind.UNRECOVERABLE: FailurePolicy(retry=False),
    FailureKind.BAD_ARGUMENTS: FailurePolicy(retry=False),
    FailureKind.BAD_RESULT: FailurePolicy(retry=False),
    FailureKind.UNKNOWN_NAME: FailurePolicy(retry=False),
    FailureKind.TIMED_OUT: FailurePolicy(retry=True, grows_timeout=True),
    FailureKind.RATE_LIMITED: FailurePolicy(retry=True, counts=False),
    FailureKind.OUT_OF_MEMORY: FailurePolicy(retry=False, alert=True),
    FailureKind.DEPENDENCY_FAILED: FailurePolicy(retry=False),
    FailureKind.DEADLINE_PASSED: FailurePolicy(retry=False),
    FailureKind.DENIED: FailurePolicy(retry=False),
}

MAX_THROTTLES = 20  # after so many uncounted retries a rate limit counts like any failure


class TaskError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, as stored with the task."""

    kind: FailureKind
    type: str  # the exception's class name
    message: str
    retryable: bool = True  # false as well where its kind is never tried again, whatever was said
    details: dict[str, object] | None = None  # traceback, exit code, ...

    def __post_init__(self) -> None:
        if self.retryable and not FAILURES[self.kind].retry:
            structs.force_setattr(self, "retryable", False)
