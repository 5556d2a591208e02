"""What a run tells while it goes on: lines for people, and how far it has come. Bounded, however much it prints."""

import asyncio

from msgspec.structs import replace

from ade.agents.running.orders import RunDesk
from ade.core.agent_runs.events import Complained, Identified, Retrying, RunEvent, Said, Spent, ToolCalled
from ade.core.agent_runs.lines import LineCutter, clipped
from ade.core.agent_runs.results import SHOWN_TOOL_CALLS, AgentProgress

MOST_LINES = 5_000
MOST_CHARACTERS = 2_000_000
_LONGEST_LINE = 4_000
_LONGEST_SHOWN = 300
_PROGRESS_S = 1.0  # how often progress is kept; who it is, at once


class LiveLines:
    """Lines of one run for its task's output. After a bound the rest is counted, and told at the end."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk
        self._lines = MOST_LINES
        self._characters = MOST_CHARACTERS
        self._cut_lines = 0
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

    async def say(self, text: str, stream: str = "stdout") -> None:
        for line in text.splitlines() or [""]:
            await self._line(clipped(line, _LONGEST_LINE), stream)

    async def stderr(self, data: bytes) -> None:
        for line in self._stderr.feed(data):
            await self._line(line.text, "stderr")

    async def end(self) -> None:
        await self._end_part()
        rest = self._stderr.rest()
        if rest is not None:
            await self._line(rest.text, "stderr")
        if self._cut_lines:
            mark = f"[... {self._cut_lines:,} lines cut: the transcript's folder has more ...]"
            await self._desk.say(mark, "stdout")

    async def _end_part(self) -> None:
        part, self._part = self._part, ""
        if part:
            await self.say(part)

    async def _line(self, line: str, stream: str) -> None:
        if self._lines <= 0 or self._characters <= 0:
            self._cut_lines += 1
            return
        self._lines -= 1
        self._characters -= len(line) + 1
        await self._desk.say(line, stream)


class LiveProgress:
    """The progress of one attempt, kept with its task: at once when it is known who runs, else about every second."""

    def __init__(self, desk: RunDesk, begun: AgentProgress) -> None:
        self._desk = desk
        self._kept: AgentProgress | None = None
        self._next_at = 0.0
        self.now = begun
        self.is_identified = False  # the program that runs now has said who it is

    async def take_in(self, event: RunEvent) -> None:
        is_urgent = False
        match event:
            case Identified():
                self.is_identified = is_urgent = True
                known = {name: getattr(event, name) for name in Identified.__struct_fields__}
                self.now = replace(self.now, **{name: value for name, value in known.items() if value is not None})
            case Spent():
                self.now = replace(self.now, tokens=event.tokens, cost_usd=event.cost_usd, turns=event.turns)
            case ToolCalled():
                calls = (*self.now.tool_calls, replace(event, arguments=event.arguments[:_LONGEST_SHOWN]))
                count = self.now.tool_call_count + 1
                self.now = replace(self.now, tool_calls=calls[-SHOWN_TOOL_CALLS:], tool_call_count=count)
            case Said(text):
                self.now = replace(self.now, said=text[-_LONGEST_SHOWN:])
            case _:
                return
        if is_urgent or asyncio.get_running_loop().time() >= self._next_at:
            await self.keep()

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
