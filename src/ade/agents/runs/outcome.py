"""The outcome of a run: facts collected from any program, the success or failure verdict, and the report.

All collected data is bounded, whatever the program prints.
"""

from collections import OrderedDict
from enum import StrEnum, auto

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ade.agents.profiles import Profile, ProtocolName
from ade.agents.protocols.base import (
    LONGEST_ID,
    LONGEST_TEXT,
    ClippedText,
    ErrorReported,
    Record,
    RetryReported,
    RunEvent,
    SessionIdentified,
    TextEmitted,
    ToolCalled,
    UsageReported,
    clipped,
    id_of,
)
from ade.agents.runs.failures import FAILURE_OF_STATUS, RUN_FAILURES, ErrorClassification, RunFailure, read_error
from ade.failures import TaskError
from ade.tasks.outcomes import Failed

MOST_TOOL_CALLS = 1_000  # kept in full; all are counted
LONGEST_ARGUMENTS = 2_000
LONGEST_MESSAGE = 10_000
_REMEMBERED = 2_000  # IDs that detect duplicates


class RunState:
    """Facts that a protocol collects and the verdict reads. Each fact is also emitted as an event."""

    def __init__(self, longest_text: int = LONGEST_TEXT) -> None:
        self._longest_text = longest_text
        self._events: list[RunEvent] = []
        self._seen_calls: OrderedDict[str, None] = OrderedDict()
        self._steps: OrderedDict[str, UsageReported] = OrderedDict()
        self.identity = SessionIdentified()
        self.spent = UsageReported()
        self.duration_ms: int | None = None
        self.tool_calls: list[ToolCalled] = []
        self.tool_call_count = 0
        self.retries = 0
        self.long_lines = 0  # too long to parse
        self.deferred: ToolCalled | None = None
        self.result: str | None = None
        self.is_concluded = False  # a record reported the end of the run
        self.is_error = False  # that record, or an earlier decisive one, was an error
        self.complaint: str | None = None  # the last error that was not recovered from
        self.failure: RunFailure | None = None  # if the program names the kind
        self.status: int | None = None  # HTTP status of the provider's last rejection, if nothing succeeded since
        self.retry_at: int | None = None

    def take_events(self) -> list[RunEvent]:
        """Return and clear the events since the last call."""
        events, self._events = self._events, []
        return events

    def identify(self, record: Record, *names: str) -> None:
        """Set the IDs that a record has under these names. Later values replace earlier ones; missing ones stay."""
        found = {name: value for name in names if (value := id_of(record, name)) is not None}
        new = replace(self.identity, **found)
        if new != self.identity:
            self.identity = new
            self._events.append(new)

    def say(self, text: str, *, is_part: bool = False) -> None:
        self._events.append(TextEmitted(text, is_part))

    def goes_well(self) -> None:
        """The provider has responded, so its earlier rejections are recovered from, unless one ended the run."""
        self.status = None
        if not self.is_error:
            self.complaint = self.failure = None

    def call_tool(self, call_id: str | None, name: str | None, arguments: str) -> None:
        """Count each tool call ID once. A call without an ID or a name is ignored."""
        if not call_id or not name or call_id in self._seen_calls:
            return
        self._seen_calls[call_id] = None
        _forget_oldest(self._seen_calls)
        self.tool_call_count += 1
        call = ToolCalled(id=call_id, name=name[:LONGEST_ID], arguments=clipped(arguments, LONGEST_ARGUMENTS))
        self._events.append(call)
        if len(self.tool_calls) < MOST_TOOL_CALLS:
            self.tool_calls.append(call)

    def spend_step(self, step_id: str, step: UsageReported) -> None:
        """Set the cost of one step; a later report of the same step replaces the earlier one."""
        before = self._steps.get(step_id, UsageReported())
        self._steps[step_id] = step
        _forget_oldest(self._steps)
        self._tell_spent(_sum(self.spent, step, before))

    def spend_total(self, total: UsageReported) -> None:
        """Set the run's total by the program's own count, which replaces the sum of steps; missing measures do not."""
        new = {key: value for key in UsageReported.__struct_fields__ if (value := getattr(total, key)) is not None}
        self._tell_spent(replace(self.spent, **new))

    def _tell_spent(self, spent: UsageReported) -> None:
        if spent != self.spent:
            self.spent = spent
            self._events.append(spent)

    def retry(self, notice: RetryReported, *, status: int | None = None) -> None:
        """Count a retry by the program itself."""
        self.retries += 1
        self.status = status if status is not None else self.status
        self._events.append(notice)

    def complain(self, message: str, *, failure: RunFailure | None = None, status: int | None = None) -> None:
        """Record an error; the last one is kept."""
        self.complaint = clipped(message, LONGEST_MESSAGE)
        self.failure = failure or self.failure
        self.status = status if status is not None else self.status
        self._events.append(ErrorReported(self.complaint))

    def conclude(self, result: str | ClippedText | None, *, is_error: bool) -> None:
        """Record the end of the run; the last such record counts."""
        self.is_concluded, self.is_error = True, is_error
        if result is not None:
            self.result = result.text if isinstance(result, ClippedText) else clipped(result, self._longest_text)

    def gather(self) -> ClippedText:
        """Return a bounded buffer for a result that arrives in parts."""
        return ClippedText(self._longest_text)


def _forget_oldest(remembered: "OrderedDict[str, None] | OrderedDict[str, UsageReported]") -> None:
    if len(remembered) > _REMEMBERED:
        remembered.popitem(last=False)


def _sum(total: UsageReported, step: UsageReported, before: UsageReported) -> UsageReported:
    return UsageReported(**{key: _added(total, step, before, key) for key in UsageReported.__struct_fields__})


def _added(total: UsageReported, step: UsageReported, before: UsageReported, key: str) -> int | None:
    known: int | None = getattr(total, key)
    new: int | None = getattr(step, key)
    old: int | None = getattr(before, key)
    return known if new is None else (known or 0) + new - (old or 0)


# Whether a run succeeded, and if not, why. All programs share one rule, because exit codes alone are unreliable.


_LAST_WORDS = 2_000  # characters
_WAITING = (RunFailure.RATE_LIMITED, RunFailure.OVERLOADED)


class ProcessExit(Struct, frozen=True, kw_only=True):
    """What is known after the process has exited."""

    exit_code: int  # negative: the signal that ended it
    stderr: str = ""
    is_cut: bool = False  # the output ends in the middle of a line
    stopped_for: RunFailure | None = None  # why ADE stopped it, if it did
    stop_message: str = ""


class RunVerdict(Struct, frozen=True, kw_only=True):
    """Why a run failed, and when to retry it."""

    failure: RunFailure
    message: str
    retry_after_ms: int | None = None
    retry_at: int | None = None


def outcome_of_run(profile: Profile, facts: RunState, ending: ProcessExit) -> RunVerdict | None:
    """Return the verdict; None for success: exit code 0, and a success record without an error flag."""
    if ending.exit_code == 0 and facts.is_concluded and not facts.is_error:
        return None
    message = facts.complaint or _describe_exit(profile, facts, ending)
    if ending.stopped_for is not None:
        return RunVerdict(failure=ending.stopped_for, message=ending.stop_message or message)
    reading = _reading(profile, facts.complaint or "", ending.stderr)
    failure = (
        facts.failure
        or profile.exit_codes.get(ending.exit_code)
        or reading.failure
        or FAILURE_OF_STATUS.get(facts.status or 0)
        or _by_the_way_it_ended(profile, facts.complaint, ending)
    )
    if failure not in _WAITING:
        return RunVerdict(failure=failure, message=message)
    return RunVerdict(
        failure=failure,
        message=message,
        retry_after_ms=reading.retry_after_ms,
        retry_at=reading.retry_at or facts.retry_at,
    )


def _reading(profile: Profile, complaint: str, stderr: str) -> ErrorClassification:
    """Classify the program's error or, without one, the end of stderr. Either can contain the rejection of a model."""
    if profile.protocol is ProtocolName.TEXT:  # an unknown program: only its profile's marks count
        return read_error(
            stderr, rate_limit_marks=profile.rate_limit_marks, model_marks=profile.model_marks, guess=False
        )
    reading = read_error(
        complaint or stderr, rate_limit_marks=profile.rate_limit_marks, model_marks=profile.model_marks
    )
    also = read_error(stderr, rate_limit_marks=(), model_marks=profile.model_marks, guess=False)
    return also if also.failure is RunFailure.MODEL_UNSUPPORTED else reading


def _by_the_way_it_ended(profile: Profile, complaint: str | None, ending: ProcessExit) -> RunFailure:
    if complaint:
        return RunFailure.REPORTED
    if ending.is_cut or any(mark in ending.stderr for mark in profile.cut_marks):
        return RunFailure.OUTPUT_CUT
    if ending.exit_code < 0:
        return RunFailure.KILLED
    return RunFailure.EXITED if ending.exit_code else RunFailure.NO_RESULT


def _describe_exit(profile: Profile, facts: RunState, ending: ProcessExit) -> str:
    """Describe the exit and the end of stderr, because the agent has not reported a reason."""
    end = f"was ended by signal {-ending.exit_code}" if ending.exit_code < 0 else f"exited with code {ending.exit_code}"
    if profile.protocol is ProtocolName.TEXT:
        text = f"the program {end}"
    elif facts.is_concluded:
        text = f"the agent {end} although it had reported success"
    elif ending.is_cut:
        text = f"the agent's output ends in the middle of a line, and it {end}"
    elif facts.long_lines:
        text = f"the agent {end} without a result that could be read; too long lines: {facts.long_lines}"
    else:
        text = f"the agent {end} without a result"
    last_words = ending.stderr.strip()[-_LAST_WORDS:]
    return f"{text}: {last_words}" if last_words else text


# The report of a run, and its translation to a task outcome.


LONGEST_WAIT_MS = 7 * 86_400_000


class RunEnding(StrEnum):
    """How a run ended."""

    SUCCEEDED = auto()
    FAILED = auto()
    DEFERRED = auto()  # the agent waits for the approval of a tool call; then resume its session


class RunReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a run. Every text is bounded, and every ID is safe on a command line."""

    exit_code: int
    result: str | None = None  # set for a failed run too, if it printed anything
    failure: RunFailure | None = None
    error: str | None = None  # why it failed, for people
    retry_after_ms: int | None = None  # minimum pause that the provider requests
    retry_at: int | None = None  # earliest time that the provider allows (ms since 1970)
    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    spent: UsageReported = UsageReported()
    duration_ms: int | None = None  # as the program reports it
    tool_calls: tuple[ToolCalled, ...] = ()  # the first ones, each once
    tool_call_count: int = 0
    retries: int = 0  # retries by the program itself
    deferred: ToolCalled | None = None
    stderr: str = ""  # the end of it
    long_lines: int = 0  # lines that were too long to parse

    @property
    def ended(self) -> RunEnding:
        if self.failure is not None:
            return RunEnding.FAILED
        return RunEnding.SUCCEEDED if self.deferred is None else RunEnding.DEFERRED


def wait_ms(report: RunReport, now: int) -> int | None:
    """Return the pause that the provider requests, capped at one week."""
    waits = [report.retry_after_ms, None if report.retry_at is None else max(report.retry_at - now, 0)]
    known = [wait for wait in waits if wait is not None]
    return min(max(known), LONGEST_WAIT_MS) if known else None


def failed_outcome(report: RunReport, now: int) -> Failed:
    """Return the task outcome of a failed run."""
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
    """Return a name in the style of error classes: OutputCut, RateLimited."""
    return "Agent" + "".join(part.capitalize() for part in failure.value.split("_"))
