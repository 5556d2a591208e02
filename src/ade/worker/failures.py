"""Converts exceptions of handlers, timeouts, and lost locks to failed outcomes."""

import traceback

from ade.approvals.errors import Denied
from ade.common.text import storable
from ade.errors import DeadlockVictim, EffectUnknown, LockNotPermitted, NeedsStore
from ade.failures import FailureKind, TaskError
from ade.tasks.outcomes import Failed, RateLimited, Retry, RunFailed, Unrecoverable

_MESSAGE_LIMIT = 2_000
_TRACEBACK_LIMIT = 8_000
_FRAMES = 30
_KINDS: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (Retry, FailureKind.RETRY_ASKED),
    (RateLimited, FailureKind.RATE_LIMITED),
    (Unrecoverable, FailureKind.UNRECOVERABLE),
    (Denied, FailureKind.UNRECOVERABLE),  # the guard would decide the same again
    (LockNotPermitted, FailureKind.UNRECOVERABLE),  # the rulebook would decide the same again
    (EffectUnknown, FailureKind.UNRECOVERABLE),  # another run would find the same unknown state
    (NeedsStore, FailureKind.UNRECOVERABLE),  # another run here would not reach the store either
    (MemoryError, FailureKind.OUT_OF_MEMORY),
    (DeadlockVictim, FailureKind.DEADLOCK),
)
_DELAYS = {FailureKind.RETRY_ASKED: "after", FailureKind.RATE_LIMITED: "retry_after"}


def failure_of(error: BaseException) -> Failed:
    """Return the outcome of a handler that raised this."""
    if type(error) is RunFailed:
        return error.failed
    raised = type(error)  # isinstance would call code of the exception, whose class may be broken
    kind = next((kind for cause, kind in _KINDS if issubclass(raised, cause)), FailureKind.RAISED)
    return failed(kind, error, retry_after_ms=_asked_delay_ms(kind, error))


def failed(kind: FailureKind, error: BaseException, *, retry_after_ms: int | None = None) -> Failed:
    """Return a failure of this kind with the exception and its traceback, truncated."""
    name = storable(type(error).__name__)
    details: dict[str, object] = {"traceback": _traceback(error)}
    return Failed(TaskError(kind=kind, type=name, message=_message(error), details=details), retry_after_ms)


def timed_out(limit_ms: int) -> Failed:
    """Return the outcome of a run that exceeded its timeout."""
    message = f"the run took longer than its timeout of {limit_ms / 1000:g} s"
    return Failed(TaskError(kind=FailureKind.TIMED_OUT, type="TimeoutError", message=message))


def lock_lost() -> Failed:
    """Return the outcome of a run that has lost a lock."""
    message = "a lock of this run was lost, so nothing protected what it did; it may run again"
    return Failed(TaskError(kind=FailureKind.RAISED, type="LockLost", message=message))


def died(what: str, **details: object) -> Failed:
    """Return the outcome of a run whose process ended without a response."""
    error = TaskError(kind=FailureKind.RAISED, type="ProcessDied", message=what, details=details or None)
    return Failed(error)


def unwritable(what: str) -> Failed:
    """Return the failure that replaces an outcome no store can accept; every store accepts this one."""
    message = f"the outcome of the run could not be stored: {what}".encode("ascii", "backslashreplace").decode()
    return Failed(TaskError(kind=FailureKind.BAD_RESULT, type="NotStored", message=message[:_MESSAGE_LIMIT]))


def _asked_delay_ms(kind: FailureKind, error: BaseException) -> int | None:
    if kind not in _DELAYS:
        return None
    try:
        seconds = getattr(error, _DELAYS[kind])
        return None if seconds is None else max(round(seconds * 1000), 0)
    except (AttributeError, TypeError, ValueError, OverflowError):  # not a number of seconds: use the default backoff
        return None


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as broken:  # a handler's exception class may be broken
        text = f"(its message could not be made: {type(broken).__name__})"
    return storable(text[:_MESSAGE_LIMIT])


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-_FRAMES)
    except BaseException as broken:
        return f"(the traceback could not be made: {storable(type(broken).__name__)})"
    text = storable("".join(lines))
    return text if len(text) <= _TRACEBACK_LIMIT else f"[...]\n{text[-_TRACEBACK_LIMIT:]}"
