"""How a run ended and all that is known about it, and what the queue makes of that."""

from enum import StrEnum, auto

from msgspec import Struct, to_builtins

from ade.core.agent_runs.events import Spent, ToolCalled
from ade.core.agent_runs.failures import RUN_FAILURES, RunFailure
from ade.core.failure import TaskError
from ade.core.outcome import Failed

LONGEST_WAIT_MS = 7 * 86_400_000


class Ended(StrEnum):
    SUCCEEDED = auto()
    FAILED = auto()
    DEFERRED = auto()  # the agent waits for somebody to allow a tool call; resume the session then


class RunReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts alone. Every text is bounded and every id safe to be given back on a command line."""

    exit_code: int
    result: str | None = None  # also of a failed run, if it said anything
    failure: RunFailure | None = None
    error: str | None = None  # why it failed, for people
    retry_after_ms: int | None = None  # the provider asks for at least this pause
    retry_at: int | None = None  # or for nothing before this moment (ms since 1970)
    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    spent: Spent = Spent()
    duration_ms: int | None = None  # as the program tells it
    tool_calls: tuple[ToolCalled, ...] = ()  # the first ones, each once
    tool_call_count: int = 0
    retries: int = 0  # how often the program tried again by itself
    deferred: ToolCalled | None = None
    stderr: str = ""  # its end
    long_lines: int = 0  # lines that were too long to be read

    @property
    def ended(self) -> Ended:
        if self.failure is not None:
            return Ended.FAILED
        return Ended.SUCCEEDED if self.deferred is None else Ended.DEFERRED


def wait_ms(report: RunReport, now: int) -> int | None:
    """How long the provider wants to be left alone, at most a week."""
    waits = [report.retry_after_ms, None if report.retry_at is None else max(report.retry_at - now, 0)]
    known = [wait for wait in waits if wait is not None]
    return min(max(known), LONGEST_WAIT_MS) if known else None


def failed_outcome(report: RunReport, now: int) -> Failed:
    """A failed run as the queue settles it."""
    if report.failure is None:
        raise ValueError("only a failed run has a failure")
    policy = RUN_FAILURES[report.failure]
    details: dict[str, object] = {"failure": report.failure.value, "exit_code": report.exit_code}
    details |= {key: value for key in _RESUMABLE if (value := getattr(report, key)) is not None}
    if spent := to_builtins(report.spent):
        details["spent"] = spent
    if report.stderr:
        details["stderr"] = report.stderr
    error = TaskError(
        kind=policy.kind,
        type=_class_name(report.failure),
        message=report.error or report.failure.value,
        retryable=policy.is_retryable,
        details=details,
    )
    return Failed(error, wait_ms(report, now))


_RESUMABLE = ("session_id", "agent_id", "conversation_id")


def _class_name(failure: RunFailure) -> str:
    """As other errors are named: OutputCut, RateLimited."""
    return "Agent" + "".join(part.capitalize() for part in failure.value.split("_"))
