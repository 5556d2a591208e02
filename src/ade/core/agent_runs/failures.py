"""Every way in which an agent run can fail, and what it leads to. The whole policy is this one table."""

from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct

from ade.core.failure import FailureKind


class RunFailure(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    REPORTED = auto()  # the agent said that it failed, and no kind below says it better
    EXITED = auto()  # a non-zero exit code and no word about it
    KILLED = auto()  # ended by a signal that was not ours
    OUTPUT_CUT = auto()  # the output ends in the middle of a line
    NO_RESULT = auto()  # exit code 0, and no record that says how it ended
    RATE_LIMITED = auto()
    OVERLOADED = auto()  # the provider is busy with others
    QUOTA_EXHAUSTED = auto()  # paid for no more; waiting does not help
    NOT_AUTHENTICATED = auto()
    BAD_REQUEST = auto()  # the input or the setup is wrong
    CONTEXT_TOO_LONG = auto()
    MODEL_UNSUPPORTED = auto()
    TURN_LIMIT = auto()
    BUDGET_EXCEEDED = auto()
    TIMED_OUT = auto()
    OUT_OF_MEMORY = auto()
    INTERRUPTED = auto()  # somebody ended it, and it was not ADE


class RunFailurePolicy(Struct, frozen=True, kw_only=True):
    kind: FailureKind  # what the queue makes of it
    is_retryable: bool


def _again(kind: FailureKind = FailureKind.RAISED) -> RunFailurePolicy:
    return RunFailurePolicy(kind=kind, is_retryable=True)


def _never(kind: FailureKind = FailureKind.UNRECOVERABLE) -> RunFailurePolicy:
    return RunFailurePolicy(kind=kind, is_retryable=False)


RUN_FAILURES: Mapping[RunFailure, RunFailurePolicy] = {
    RunFailure.REPORTED: _again(),
    RunFailure.EXITED: _again(),
    RunFailure.KILLED: _again(),
    RunFailure.OUTPUT_CUT: _again(),
    # It ended in good order, so it may have done its work; to do it twice is worse than to ask somebody.
    RunFailure.NO_RESULT: _never(FailureKind.BAD_RESULT),
    RunFailure.RATE_LIMITED: _again(FailureKind.RATE_LIMITED),
    RunFailure.OVERLOADED: _again(FailureKind.RATE_LIMITED),
    RunFailure.QUOTA_EXHAUSTED: _never(),
    RunFailure.NOT_AUTHENTICATED: _never(),
    RunFailure.BAD_REQUEST: _never(),
    RunFailure.CONTEXT_TOO_LONG: _never(),
    RunFailure.MODEL_UNSUPPORTED: _never(),
    RunFailure.TURN_LIMIT: _never(),
    RunFailure.BUDGET_EXCEEDED: _never(),
    RunFailure.TIMED_OUT: _again(FailureKind.TIMED_OUT),
    RunFailure.OUT_OF_MEMORY: _never(FailureKind.OUT_OF_MEMORY),
    RunFailure.INTERRUPTED: _again(),
}

# What a provider's HTTP status means, whatever is written beside it. Others say nothing for certain.
FAILURE_OF_STATUS: Mapping[int, RunFailure] = {
    400: RunFailure.BAD_REQUEST,
    401: RunFailure.NOT_AUTHENTICATED,
    402: RunFailure.QUOTA_EXHAUSTED,
    403: RunFailure.NOT_AUTHENTICATED,
    413: RunFailure.CONTEXT_TOO_LONG,
    429: RunFailure.RATE_LIMITED,
    503: RunFailure.OVERLOADED,
    529: RunFailure.OVERLOADED,
}
