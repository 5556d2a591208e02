"""What a run tells while it goes on: lines for people, and how far it has come. Bounded, however much it prints."""

import asyncio
from collections import deque

from msgspec.structs import replace

from ade.agents.running.orders import RunDesk
from ade.core.agent_runs.command_line import SAFE_ID
from ade.core.agent_runs.events import Complained, Identified, Retrying, RunEvent, Said, Spent, ToolCalled
from ade.core.agent_runs.lines import LineCutter, clipped
from ade.core.agent_runs.profiles import Profile, url_of
from ade.core.agent_runs.results import SHOWN_TOOL_CALLS, AgentProgress

MOST_LINES = 5_000
MOST_ERROR_LINES = 1_000  # what a program complains of must not take the room of what the agent says
MOST_CHARACTERS = 2_000_000
_LONGEST_LINE = 4_000
_LONGEST_SHOWN = 300
_LAST_LINES = 20
_PROGRESS_S = 1.0  # how often progress is kept; who it is, at once


class _Room:
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


class LiveLines:
    """Lines of one run for its task's output. Where one is left out first a mark says so, and at the end how many."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk
        self._rooms = {"stdout": _Room(MOST_LINES), "stderr": _Room(MOST_ERROR_LINES)}
        self._stderr = LineCutter(_LONGEST_LINE)
        self._part = ""  # of a line that comes word by word

    async def show(self, event: RunEvent) -> None:
        if isinstance(event, Said) and event.is_part:
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

    def __init__(self, desk: RunDesk, profile: Profile, begun: AgentProgress) -> None:
        self._desk = desk
        self._profile = profile
        self._kept: AgentProgress | None = None
        self._next_at = 0.0
        self.now = begun
        self.is_identified = False  # the program that runs now has said who it is
        self.tokens_before = 0  # that its session had taken before, if it counts those too

    def own(self, spent: Spent) -> Spent:
        """What the program that runs now has spent by itself."""
        tokens = None if spent.tokens is None else max(spent.tokens - self.tokens_before, 0)
        return replace(spent, tokens=tokens)

    async def take_in(self, event: RunEvent) -> None:
        match event:
            case Identified():
                self._identify(event)
                await self.keep()
            case Spent():
                own = self.own(event)
                self.now = replace(self.now, tokens=own.tokens, cost_usd=own.cost_usd, turns=own.turns)
            case ToolCalled():
                calls = (*self.now.tool_calls, replace(event, arguments=event.arguments[:_LONGEST_SHOWN]))
                count = self.now.tool_call_count + 1
                self.now = replace(self.now, tool_calls=calls[-SHOWN_TOOL_CALLS:], tool_call_count=count)
            case Said(text):
                self.now = replace(self.now, said=text[-_LONGEST_SHOWN:])
        if asyncio.get_running_loop().time() >= self._next_at:
            await self.keep()

    def _identify(self, event: Identified) -> None:
        """Ids go back on a command line: one that could be taken for a flag is none."""
        self.is_identified = True
        known = {name: getattr(event, name) for name in Identified.__struct_fields__}
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
        case Said(text):
            return text
        case ToolCalled():
            return f"[tool] {event.name} {clipped(event.arguments, _LONGEST_SHOWN)}".rstrip()
        case Retrying():
            return f"[retry] {event.reason}"
        case Complained(message):
            return f"[error] {message}"
    return None
