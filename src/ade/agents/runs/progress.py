"""Live output lines, progress, and event log entries of a run in progress, all bounded in size."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from msgspec.structs import replace

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
)
from ade.agents.runs import model as runs_model
from ade.agents.runs.command_line import SAFE_ID
from ade.agents.runs.model import SHOWN_TOOL_CALLS, AgentProgress, AgentResult
from ade.agents.runs.spec import AgentRunSpec, RunContext
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

    def __init__(self, desk: RunContext) -> None:
        self._desk = desk
        self._rooms = {"stdout": _OutputQuota(MOST_LINES), "stderr": _OutputQuota(MOST_ERROR_LINES)}
        self._stderr = LineSplitter(_LONGEST_LINE)
        self._part = ""  # an incomplete line that arrives in parts

    async def show(self, event: RunEvent) -> None:
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
        for stream, room in self._rooms.items():
            if room.cut > len(room.last):
                await self._desk.say(f"[... {room.cut - len(room.last):,} lines cut ...]", stream)
            for line in room.last:
                await self._desk.say(line, stream)

    async def _end_part(self) -> None:
        part, self._part = self._part, ""
        if part:
            await self.say(part)

    async def _line(self, line: str, stream: str) -> None:
        room = self._rooms[stream]
        if room.takes(line):
            await self._desk.say(line, stream)
        elif room.cut == 1:
            await self._desk.say("[... too much to show; more is in the folder of the transcript ...]", stream)


class LiveProgress:
    """Stores the progress of one attempt with its task: IDs immediately, other updates about once per second."""

    def __init__(self, desk: RunContext, profile: Profile, begun: AgentProgress) -> None:
        self._desk = desk
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
        await self._desk.progress(self.now)


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

    def __init__(self, stores: Stores, order: AgentRunSpec, desk: RunContext, actor: str) -> None:
        self._stores = stores
        self._order = order
        self._desk = desk
        self._actor = actor
        self._progress: AgentProgress | None = None
        self._has_begun = False
        self.outcome: AgentResult | TaskError | None = None
        self.say, self.guard, self.allows = desk.say, desk.guard, desk.allows

    async def progress(self, progress: AgentProgress) -> None:
        self._progress = progress
        await self._desk.progress(progress)
        if not self._has_begun and (progress.session_id or progress.agent_id or progress.model):
            self._has_begun = True
            await self._enter(partial(runs_model.began, progress))

    async def end(self) -> None:
        if self._progress is not None:
            await self._enter(partial(runs_model.ended, self._progress, self.outcome))

    async def _enter(self, event: Callable[..., Event]) -> None:
        """Write an event. Errors never fail the run, because its task records the outcome."""
        order, at = self._order, self._stores.clock.now()
        made = event(task_id=order.task_id, run_id=order.run_id, at=at, actor=self._actor)
        try:
            await self._stores.documents.write((), [made])
        except AdeError as error:
            log.warning("agent_run.not_told", task_id=order.task_id, type=made.type, error=str(error))


@asynccontextmanager
async def run_events(
    stores: Stores, order: AgentRunSpec, desk: RunContext, *, actor: str
) -> AsyncIterator[LoggedRunContext]:
    """Log events while the block runs; the caller sets the outcome."""
    run = LoggedRunContext(stores, order, desk, actor)
    try:
        yield run
    except RunFailed as failure:
        run.outcome = failure.failed.error
        raise
    finally:
        await run.end()
