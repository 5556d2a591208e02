"""Kinds of failure, the retry policy for each kind, the stored error of a task, and backoff delays."""

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
    "deadlock",
]  # kinds of failure that a worker can report


class FailureKind(StrEnum):
    """Why an attempt failed."""

    RAISED = auto()  # the handler raised, or an agent exited non-zero
    RETRY_ASKED = auto()  # the handler raised Retry
    WORKER_DIED = auto()  # the lease expired
    UNRECOVERABLE = auto()  # the handler raised Unrecoverable
    BAD_ARGUMENTS = auto()  # the stored arguments do not match the handler
    BAD_RESULT = auto()  # the result does not match the declared type, or exceeds the hard limit
    UNKNOWN_NAME = auto()  # no handler with this name
    TIMED_OUT = auto()
    RATE_LIMITED = auto()
    OUT_OF_MEMORY = auto()
    DEPENDENCY_FAILED = auto()
    DEADLINE_PASSED = auto()
    DENIED = auto()  # a guard rule forbids it
    DEADLOCK = auto()  # the run was the victim of a deadlock


class FailurePolicy(Struct, frozen=True, kw_only=True):
    """How a kind of failure is handled. FAILURES contains the whole policy."""

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
    FailureKind.DEADLOCK: FailurePolicy(retry=True),
}

MAX_THROTTLES = 20  # after this many uncounted retries, a rate limit counts like any failure


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


def unreadable_record(why: str) -> TaskError:
    """The error of a task whose arguments and outcome cannot be read from the store."""
    return TaskError(
        kind=FailureKind.BAD_ARGUMENTS,
        type="UnreadableRecord",
        message=f"the stored record cannot be read ({why[:200]})",
        retryable=False,
    )


class Backoff(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Delays of 1 s, 2 s, 4 s ... up to the cap, or else the steps; spread by the jitter. All times in milliseconds."""

    base_ms: int = 1_000
    multiplier: float = 2.0
    cap_ms: int = 300_000
    jitter: float = 0.1
    steps_ms: tuple[int, ...] = ()  # one delay per failed attempt, the last one for all later attempts; empty: computed

    def delay_ms(self, failures: int, randomness: float) -> int:
        """Return the delay after `failures` failed attempts. `randomness` in [0, 1); 0.5 means no jitter."""
        retries = max(failures - 1, 0)
        plain = self.steps_ms[min(retries, len(self.steps_ms) - 1)] if self.steps_ms else self._grown_ms(retries)
        return round(plain * (1 + self.jitter * (2 * randomness - 1)))

    def _grown_ms(self, retries: int) -> float:
        try:
            # float: an exact power of an integer multiplier would take too long for huge counts
            return min(self.base_ms * float(self.multiplier) ** retries, float(self.cap_ms))
        except OverflowError:
            return float(self.cap_ms if self.base_ms else 0)


BACKOFFS: Mapping[str, Backoff] = {
    "exponential": Backoff(),  # 2^n seconds, at most 5 minutes
    "steps": Backoff(steps_ms=(60_000, 300_000, 900_000)),  # 1, 5, 15 minutes
}


TIMEOUT_GROWTH = 1.5
TIMEOUT_LIMIT = 4.0


def grown_timeout_ms(timeout_ms: int, timeouts: int) -> int:
    """Return the time limit of the next attempt after `timeouts` timeouts: 1.5x each, at most 4x."""
    return round(timeout_ms * min(TIMEOUT_GROWTH ** min(timeouts, 10), TIMEOUT_LIMIT))
