"""Failure kinds of agent runs, the retry policy of each, and the classification of error text of failed runs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, auto

from msgspec import Struct

from ade.failures import FailureKind

# Every way in which an agent run can fail, and its consequence. This table is the whole policy.


class RunFailure(StrEnum):
    """Why an agent run failed."""

    __hash__ = str.__hash__  # the Enum's own __hash__ is a Python function, which is slower

    REPORTED = auto()  # the agent reported a failure, and no kind below is more specific
    EXITED = auto()  # a non-zero exit code without an error message
    KILLED = auto()  # by a signal that ADE did not send
    OUTPUT_CUT = auto()  # the output ends in the middle of a line
    NO_RESULT = auto()  # exit code 0, but no record of the outcome
    RATE_LIMITED = auto()
    OVERLOADED = auto()  # the provider is overloaded
    QUOTA_EXHAUSTED = auto()  # no credit left; waiting does not help
    NOT_AUTHENTICATED = auto()
    BAD_REQUEST = auto()  # the input or the setup is wrong
    CONTEXT_TOO_LONG = auto()
    MODEL_UNSUPPORTED = auto()
    TURN_LIMIT = auto()
    BUDGET_EXCEEDED = auto()
    TIMED_OUT = auto()
    OUT_OF_MEMORY = auto()
    INTERRUPTED = auto()  # stopped by something other than ADE


class RunFailurePolicy(Struct, frozen=True, kw_only=True):
    """What a failure means for the task."""

    kind: FailureKind  # the failure kind of the task
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
    # It exited normally, so it might have done its work. Doing it twice is worse than leaving the decision to a person.
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

# Meaning of a provider's HTTP status, whatever the message. Other statuses are ambiguous.
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


LONGEST_LOOKED_AT = 20_000  # characters of an error that are inspected
LONGEST_PAUSE_MS = 86_400_000  # cap for pauses found in text, which might refer to something else

RATE_LIMIT_MARKS = (
    "rate limit",
    "rate_limit",
    "ratelimit",
    "too many requests",
    "resource_exhausted",
    "usage limit",
    "session limit",
    "weekly limit",
    "limit reached|",
    "throttl",
)

# The first match decides, so more certain patterns come first. All in lower case.
_MARKS: Mapping[RunFailure, tuple[str, ...]] = {
    RunFailure.QUOTA_EXHAUSTED: (
        "insufficient_quota",
        "exceeded your current quota",
        "credit balance",
        "out of credits",
        "not enough credits",
        "insufficient credits",
        "payment required",
        "billing hard limit",
    ),
    RunFailure.CONTEXT_TOO_LONG: (
        "context_length_exceeded",
        "context length",
        "context window",
        "prompt is too long",
        "maximum number of tokens",
    ),
    RunFailure.NOT_AUTHENTICATED: (
        "authentication_error",
        "authentication_failed",
        "invalid api key",
        "invalid x-api-key",
        "incorrect api key",
        "not logged in",
        "please run /login",
        "access token could not be refreshed",
        "unauthorized",
    ),
    RunFailure.OVERLOADED: (
        "overloaded",
        "service unavailable",
        "service is unavailable",
        "at capacity",
        "server is busy",
    ),
}

_STATUS = re.compile(r"\b(?:api error|status|http|error code)(?:\W{1,3}code)?\W{0,4}(?P<status>[45]\d\d)\b")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_TIME = rf"{_NUMBER}\s?(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)\b"
_TIMES = rf"{_TIME}(?:(?:,| and)? ?{_TIME}){{0,4}}"
_PAUSES = (
    re.compile(rf"retry[-_ ]?after(?:[-_ ](?P<unit>ms|seconds?))?\W{{0,4}}(?P<times>{_TIMES}|{_NUMBER})"),
    re.compile(rf"retry[-_]?delay\W{{1,5}}(?P<times>{_TIMES})"),
    re.compile(
        rf"(?:try again|retry|retrying|resets?|wait|available again) (?:in |after |for )?(?:about )?(?P<times>{_TIMES})"
    ),
)
_PART = re.compile(rf"(?P<number>{_NUMBER})\s?(?P<unit>ms|mil|s|m|h|d)?")
_COMPACT = re.compile(r"(?<=\d)(h|m|s)(?=\d)")  # 6m0s
_MOMENT = re.compile(r"(?:limit reached\||resets?_?at\W{1,4})(?P<epoch>\d{10}(?:\d{3})?)\b")


class ErrorClassification(Struct, frozen=True, kw_only=True):
    """The kind of failure, and when to retry."""

    failure: RunFailure | None = None
    retry_after_ms: int | None = None
    retry_at: int | None = None


def read_error(
    text: str, *, rate_limit_marks: Iterable[str], model_marks: Iterable[Sequence[str]], guess: bool = True
) -> ErrorClassification:
    """Classify an error. `model_marks`: texts that must all occur for the model to be the reason.

    Without `guess`, only the given marks count, because the program is unknown.
    """
    plain = text[:LONGEST_LOOKED_AT].lower()
    after, at = pause_in(plain), moment_in(plain)
    failure = _named_in(plain, rate_limit_marks, model_marks)
    if guess and failure is not RunFailure.MODEL_UNSUPPORTED:
        failure = _guessed_from(plain) or failure or _by_status(plain)
    if failure is RunFailure.QUOTA_EXHAUSTED and (after or at):
        failure = RunFailure.RATE_LIMITED  # a quota that renews by itself
    return ErrorClassification(failure=failure, retry_after_ms=after, retry_at=at)


def _named_in(plain: str, rate_limit_marks: Iterable[str], model_marks: Iterable[Sequence[str]]) -> RunFailure | None:
    if any(all(mark.lower() in plain for mark in marks) for marks in model_marks):
        return RunFailure.MODEL_UNSUPPORTED
    return RunFailure.RATE_LIMITED if _has_one(plain, rate_limit_marks) else None


def _guessed_from(plain: str) -> RunFailure | None:
    return next((failure for failure, marks in _MARKS.items() if _has_one(plain, marks)), None)


def _has_one(plain: str, marks: Iterable[str]) -> bool:
    """Return whether a mark starts a word: a file or test name that contains one is not a match."""
    pattern = "|".join(re.escape(mark.lower()) for mark in marks)
    return bool(pattern) and re.search(rf"(?<![\w/.-])(?:{pattern})", plain) is not None


def _by_status(plain: str) -> RunFailure | None:
    found = _STATUS.search(plain)
    return FAILURE_OF_STATUS.get(int(found["status"])) if found else None


def pause_in(plain: str) -> int | None:
    """Return the pause in ms from text such as `retry after 30`, `try again in 1h 20m`, or `retryDelay: "34s"`."""
    plain = _COMPACT.sub(r"\1 ", plain)
    for pattern in _PAUSES:
        if found := pattern.search(plain):
            bare_unit = _UNITS["ms"] if found.groupdict().get("unit") == "ms" else _UNITS["s"]
            pause = round(sum(_part_ms(part, bare_unit) for part in _PART.finditer(found["times"])))
            return min(pause, LONGEST_PAUSE_MS)
    return None


def _part_ms(part: re.Match[str], bare_unit: int) -> float:
    unit = part["unit"]
    size = bare_unit if unit is None else _UNITS["ms" if unit == "mil" else unit]
    return float(part["number"]) * size


def moment_in(plain: str) -> int | None:
    """Return the time (ms since 1970) at which a limit ends, as in `limit reached|1750000000`."""
    found = _MOMENT.search(plain)
    if found is None:
        return None
    return int(found["epoch"]) * (1_000 if len(found["epoch"]) == 10 else 1)
