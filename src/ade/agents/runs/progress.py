"""What a run tells while it goes on: lines for people, and how far it has come. Bounded, however much it prints."""

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
MOST_ERROR_LINES = 1_000  # what a program complains of must not take the room of what the agent says
MOST_CHARACTERS = 2_000_000
_LONGEST_LINE = 4_000
_LONGEST_SHOWN = 300
_LAST_LINES = 20
_PROGRESS_S = 1.0  # how often progress is kept; who it is, at once


class _OutputQuota:
    """How much of a stream is still kept. After it is used up the newest lines are remembered for the end."""

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
    """Lines of one run for its task's output. Where one is left out first a mark says so, and at the end how many."""

    def __init__(self, desk: RunContext) -> None:
        self._desk = desk
        self._rooms = {"stdout": _OutputQuota(MOST_LINES), "stderr": _OutputQuota(MOST_ERROR_LINES)}
        self._stderr = LineSplitter(_LONGEST_LINE)
        self._part = ""  # of a line that comes word by word

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
    """The progress of one attempt, kept with its task: at once when it is known who runs, else about every second."""

    def __init__(self, desk: RunContext, profile: Profile, begun: AgentProgress) -> None:
        self._desk = desk
        self._profile = profile
        self._kept: AgentProgress | None = None
        self._next_at = 0.0
        self.now = begun
        self.is_identified = False  # the program that runs now has said who it is
        self.tokens_before = 0  # that its session had taken before, if it counts those too

    def own(self, spent: UsageReported) -> UsageReported:
        """What the program that runs now has spent by itself."""
        tokens = None if spent.tokens is None else max(spent.tokens - self.tokens_before, 0)
        return replace(spent, tokens=tokens)

    async def take_in(self, event: RunEvent) -> None:
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
        """Ids go back on a command line: one that could be taken for a flag is none."""
        self.is_identified = True
        known = {name: getattr(event, name) for name in SessionIdentified.__struct_fields__}
        safe = {name: value for name, value in known.items() if value is not None and SAFE_ID.fullmatch(value)}
        now = replace(self.now, **safe)
        self.now = replace(now, url=url_of(self._profile, now))

    async def keep(self) -> None:
        if self.now == self._kept:
            return
        self._kept = self.now
        self._next_at = asyncio.get_running_loop().time() + _PROGRESS_S
        await self._desk.progress(self.now)


def _shown(event: RunEvent) -> str | None:
    """An event as a line for people; None for what is no news to them."""
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


# What the event log hears of a run: who runs, and at its end what it took.


log = Log("ade.agents")


class LoggedRunContext:
    """A desk that also tells the event log. `outcome` stays None if the run is cut short."""

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
        """Never the run's trouble: what it came to is told by its task."""
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
    """As long as the run lasts; whoever runs it sets the outcome."""
    run = LoggedRunContext(stores, order, desk, actor)
    try:
        yield run
    except RunFailed as failure:
        run.outcome = failure.failed.error
        raise
    finally:
        await run.end()
