"""One execution of an agent program: start it, pass on its output and progress, and stop it at a budget limit.

Everything that is stored of a run in progress is bounded in size. Retries are decided elsewhere.
"""

import asyncio
import os
import shlex
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ade.agents.processes.output import Stream
from ade.agents.processes.process import ExitCause, ProcessResult, ProcessSpec, run_process
from ade.agents.profiles import Profile, url_of
from ade.agents.protocols.base import (
    ErrorReported,
    LineSplitter,
    RetryReported,
    RunEvent,
    SessionIdentified,
    TextEmitted,
    ToolCalled,
    UsageReported,
    clipped,
    secrets_in,
)
from ade.agents.protocols.reader import OutputReader
from ade.agents.runs import model as runs_model
from ade.agents.runs.command_line import SAFE_ID, RunAssignment, command_of, environment_of
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.files import Transcript
from ade.agents.runs.hooks import HookServer
from ade.agents.runs.model import (
    SHOWN_TOOL_CALLS,
    AgentProgress,
    AgentResult,
    Budget,
    BudgetExcess,
    excess_of,
)
from ade.agents.runs.outcome import RunReport
from ade.agents.runs.spec import AgentRunSpec, DirectoryPolicy, ProcessLimits, RunContext
from ade.errors import AdeError
from ade.events.model import Event
from ade.failures import TaskError
from ade.logs import Log
from ade.stores.ports import Stores
from ade.tasks.outcomes import RunFailed

MOST_LINES = 5_000
MOST_ERROR_LINES = 1_000  # so that a program's errors cannot use up the space for the agent's text
MOST_CHARACTERS = 2_000_000
_LONGEST_LINE = 4_000
_LONGEST_SHOWN = 300
_LAST_LINES = 20
_PROGRESS_S = 1.0  # interval between stored updates; IDs are stored immediately


class _OutputQuota:
    """The remaining space for a stream. Once it is used up, the newest lines are kept for the end."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._characters = MOST_CHARACTERS
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self.cut = 0

    def takes(self, line: str) -> bool:
        if self._lines > 0 and self._characters > 0:
            self._lines -= 1
            self._characters -= len(line) + 1
            return True
        self.cut += 1
        self._last.append(line)
        return False

    @property
    def last(self) -> list[str]:
        return list(self._last)


class LiveOutput:
    """Writes the lines of a run to its task's output. The first omission is marked, and their number is added at the
    end.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._quotas = {"stdout": _OutputQuota(MOST_LINES), "stderr": _OutputQuota(MOST_ERROR_LINES)}
        self._stderr = LineSplitter(_LONGEST_LINE)
        self._part = ""  # an incomplete line that arrives in parts

    async def show(self, event: RunEvent) -> None:
        """Write an event as a line, once the line is complete."""
        if isinstance(event, TextEmitted) and event.is_part:
            *lines, self._part = f"{self._part}{event.text}".split("\n")
            for line in lines:
                await self.say(line)
            self._part = clipped(self._part, _LONGEST_LINE)
        elif (text := _shown(event)) is not None:
            await self._end_part()
            await self.say(text)

    async def say(self, text: str) -> None:
        for line in text.splitlines() or [""]:
            await self._line(clipped(line, _LONGEST_LINE), "stdout")

    async def stderr(self, data: bytes) -> None:
        for line in self._stderr.feed(data):
            await self._line(line.text, "stderr")

    async def end(self) -> None:
        """Write incomplete lines, and the newest ones that did not fit."""
        await self._end_part()
        rest = self._stderr.rest()
        if rest is not None:
            await self._line(rest.text, "stderr")
        for stream, quota in self._quotas.items():
            if quota.cut > len(quota.last):
                await self._context.say(f"[... {quota.cut - len(quota.last):,} lines cut ...]", stream)
            for line in quota.last:
                await self._context.say(line, stream)

    async def _end_part(self) -> None:
        part, self._part = self._part, ""
        if part:
            await self.say(part)

    async def _line(self, line: str, stream: str) -> None:
        quota = self._quotas[stream]
        if quota.takes(line):
            await self._context.say(line, stream)
        elif quota.cut == 1:
            await self._context.say("[... too much to show; more is in the folder of the transcript ...]", stream)


class LiveProgress:
    """Stores the progress of one attempt with its task: IDs immediately, other updates about once per second."""

    def __init__(self, context: RunContext, profile: Profile, begun: AgentProgress) -> None:
        self._context = context
        self._profile = profile
        self._kept: AgentProgress | None = None
        self._next_at = 0.0
        self.now = begun
        self.is_identified = False  # whether the current program has reported its IDs
        self.tokens_before = 0  # used by the session before, if its program counts whole sessions

    def own(self, spent: UsageReported) -> UsageReported:
        """Return what the current program itself has spent."""
        tokens = None if spent.tokens is None else max(spent.tokens - self.tokens_before, 0)
        return replace(spent, tokens=tokens)

    async def take_in(self, event: RunEvent) -> None:
        """Update the progress from an event."""
        match event:
            case SessionIdentified():
                self._identify(event)
                await self.keep()
            case UsageReported():
                own = self.own(event)
                self.now = replace(self.now, tokens=own.tokens, cost_usd=own.cost_usd, turns=own.turns)
            case ToolCalled():
                calls = (*self.now.tool_calls, replace(event, arguments=event.arguments[:_LONGEST_SHOWN]))
                count = self.now.tool_call_count + 1
                self.now = replace(self.now, tool_calls=calls[-SHOWN_TOOL_CALLS:], tool_call_count=count)
            case TextEmitted(text):
                self.now = replace(self.now, said=text[-_LONGEST_SHOWN:])
        if asyncio.get_running_loop().time() >= self._next_at:
            await self.keep()

    def _identify(self, event: SessionIdentified) -> None:
        """IDs are passed on a command line later, so one that could be parsed as a flag is dropped."""
        self.is_identified = True
        known = {name: getattr(event, name) for name in SessionIdentified.__struct_fields__}
        safe = {name: value for name, value in known.items() if value is not None and SAFE_ID.fullmatch(value)}
        now = replace(self.now, **safe)
        self.now = replace(now, url=url_of(self._profile, now))

    async def keep(self) -> None:
        """Store the progress if it has changed."""
        if self.now == self._kept:
            return
        self._kept = self.now
        self._next_at = asyncio.get_running_loop().time() + _PROGRESS_S
        await self._context.progress(self.now)


def _shown(event: RunEvent) -> str | None:
    """Return an event as a line for people; None if there is nothing to show."""
    match event:
        case TextEmitted(text):
            return text
        case ToolCalled():
            return f"[tool] {event.name} {clipped(event.arguments, _LONGEST_SHOWN)}".rstrip()
        case RetryReported():
            return f"[retry] {event.reason}"
        case ErrorReported(message):
            return f"[error] {message}"
    return None


# Event log entries of a run: its identity, and its usage at the end.


log = Log("ade.agents")


class LoggedRunContext:
    """A `RunContext` that also writes to the event log. `outcome` stays None if the run is interrupted."""

    def __init__(self, stores: Stores, spec: AgentRunSpec, context: RunContext, actor: str) -> None:
        self._stores = stores
        self._run_spec = spec
        self._context = context
        self._actor = actor
        self._progress: AgentProgress | None = None
        self._has_begun = False
        self.outcome: AgentResult | TaskError | None = None
        self.say, self.guard, self.allows = context.say, context.guard, context.allows

    async def progress(self, progress: AgentProgress) -> None:
        self._progress = progress
        await self._context.progress(progress)
        if not self._has_begun and (progress.session_id or progress.agent_id or progress.model):
            self._has_begun = True
            await self._enter(partial(runs_model.began, progress))

    async def end(self) -> None:
        if self._progress is not None:
            await self._enter(partial(runs_model.ended, self._progress, self.outcome))

    async def _enter(self, event: Callable[..., Event]) -> None:
        """Write an event. Errors never fail the run, because its task records the outcome."""
        spec, at = self._run_spec, self._stores.clock.now()
        made = event(task_id=spec.task_id, run_id=spec.run_id, at=at, actor=self._actor)
        try:
            await self._stores.documents.write((), [made])
        except AdeError as error:
            log.warning("agent_run.event_not_written", task_id=spec.task_id, type=made.type, error=str(error))


@asynccontextmanager
async def run_events(
    stores: Stores, spec: AgentRunSpec, context: RunContext, *, actor: str
) -> AsyncIterator[LoggedRunContext]:
    """Log events while the block runs; the caller sets the outcome."""
    run = LoggedRunContext(stores, spec, context, actor)
    try:
        yield run
    except RunFailed as failure:
        run.outcome = failure.failed.error
        raise
    finally:
        await run.end()


# The program itself.


_MEGABYTE = 1024 * 1024
# With -P nothing is imported from the agent's own directory; otherwise the agent could approve its own calls. A hook
# that crashes denies the call too: exit code 2 is the only one that all programs treat as a denial.
_HOOK = shlex.join([sys.executable, "-P", "-m", "ade.cli", "hook", "pre-tool-use"]) + " || exit 2"


class ProgramEnvironment(Struct, frozen=True, kw_only=True):
    """Working directory, variables, and limits of a program."""

    directory: Path
    care: DirectoryPolicy
    environment: Mapping[str, str] = {}  # requested by the task
    added: Mapping[str, str] = {}  # set by ADE
    budgets: Mapping[str, Budget] = {}
    line: HookServer  # the server for the agent's hooks
    silence_s: float | None = None  # a worker that is suspended for this long has its programs killed


class Program:
    """Runs one program, and turns its output into lines, progress, files, and a final report."""

    def __init__(self, profile: Profile, lines: LiveOutput, progress: LiveProgress, transcript: Transcript) -> None:
        self._profile = profile
        self._lines = lines
        self._progress = progress
        self._transcript = transcript
        self._stop = asyncio.Event()
        self._excess: BudgetExcess | None = None

    async def run(self, assignment: RunAssignment, setting: ProgramEnvironment) -> RunReport:
        """Return the report. Raises ProgramNotStarted, InvalidArguments, and errors of the run context; then no process
        is left.
        """
        spec = self._spec(assignment, setting)
        secrets = setting.line.secrets = secrets_in(spec.environment)
        reader = OutputReader(self._profile, secrets=secrets)

        async def on_bytes(stream: Stream, data: bytes) -> None:
            self._transcript.raw(data)
            if stream == "stderr":
                reader.feed_stderr(data)
                await self._lines.stderr(data)
                return
            await self._tell(reader.feed(data))
            self._look_at_budgets(setting.budgets, reader)

        waiting = asyncio.create_task(self._stop_when(setting.line.must_end))
        try:
            ended = await run_process(spec, on_bytes=on_bytes, stop=self._stop)
        finally:
            waiting.cancel()
        stopped_for, message = self._why(ended)
        events, report = reader.finish(_exit_code(ended), stopped_for=stopped_for, stop_message=message)
        await self._tell(events)
        if stopped_for is None and setting.line.must_end.is_set():  # it was stopped only because of the call
            pending = ToolCalled(id="hook", name=setting.line.pending.tool if setting.line.pending else "")
            return replace(report, failure=None, error=None, deferred=pending)
        return report

    async def _stop_when(self, must_end: asyncio.Event) -> None:
        """Stop a program that cannot wait in its session. It resumes once reviewers have approved the call."""
        await must_end.wait()
        self._stop.set()

    async def _tell(self, events: Sequence[RunEvent]) -> None:
        for event in events:
            await self._progress.take_in(event)
            await self._lines.show(event)

    def _spec(self, assignment: RunAssignment, setting: ProgramEnvironment) -> ProcessSpec:
        profile = self._profile
        command = command_of(profile, assignment, _HOOK)
        environment = environment_of(profile, os.environ, setting.environment)
        memory = None if profile.memory_mb is None else profile.memory_mb * _MEGABYTE
        return ProcessSpec(
            arguments=command.argv,
            directory=setting.directory,
            care=setting.care,
            environment={**environment, **setting.added, **setting.line.environment},
            stdin="" if command.stdin is None else command.stdin.decode("utf-8", "surrogateescape"),
            limits=ProcessLimits(
                time_s=None,  # the task has the timeout
                memory_bytes=memory,
                silence_s=setting.silence_s,
            ),
        )

    def _look_at_budgets(self, budgets: Mapping[str, Budget], reader: OutputReader) -> None:
        """Stop at a budget limit, unless the run is concluded: its cost is spent, and its result is useful."""
        if self._excess is None and not reader.is_concluded:
            self._excess = excess_of(budgets, self._progress.own(reader.spent))
            if self._excess is not None:
                self._stop.set()

    def _why(self, ended: ProcessResult) -> tuple[RunFailure | None, str]:
        if ended.why is ExitCause.MEMORY_LIMIT:
            return RunFailure.OUT_OF_MEMORY, f"it exceeded its memory limit of {self._profile.memory_mb:,} MB"
        if ended.why is ExitCause.LOST:
            return RunFailure.KILLED, "the process that looked after it was killed; what was found of it was ended"
        if ended.why is ExitCause.WORKER_GONE:
            return RunFailure.KILLED, "its worker was silent for longer than a lease, so it was ended"
        if self._excess is not None:
            return RunFailure.BUDGET_EXCEEDED, self._excess.message
        return None, ""


def _exit_code(ended: ProcessResult) -> int:
    if ended.exit_code is not None:
        return ended.exit_code
    return -(ended.signal or 9)
