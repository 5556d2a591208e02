"""Streams of a server: read as they come, taken up again where they broke off."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

import msgspec

from ade.client.reading import FIRST_REDIRECT, problem_of_stream, read_record
from ade.client.repeating import Patience, backoff_s, pause_after_problem
from ade.core.errors import AdeError, ServerUnreachable
from ade.core.events import Event
from ade.core.feeds.items import TASK_IS_FINAL, End, Gap
from ade.core.feeds.reading import Block, BlockReader
from ade.core.feeds.sse import MEDIA_TYPE
from ade.core.records import OutputLine
from ade.core.web.raising import ServerProblem, error_of
from ade.core.web.routes.table import ROUTE_OF
from ade.core.web.targets import target_of
from ade.net.pool import HttpClient

if TYPE_CHECKING:
    from ade.client.transport import EventWish

_HEAD_S = 30.0
_SILENCE_S = 60.0  # a server says something at least every 15 seconds


class Reach(Protocol):
    """What a stream needs to begin, and to come again."""

    patience: Patience
    sleep: Callable[[float], Awaitable[None]]
    dice: Callable[[], float]

    def client(self) -> HttpClient: ...

    def headers(self, accept: str) -> Mapping[str, str]: ...


async def follow_events(reach: Reach, wish: "EventWish") -> AsyncGenerator[Event | Gap, None]:
    """Never ends by itself: a server that stops is asked again, behind the last event that came."""
    after = () if wish.after is None else (("after", str(wish.after)),)
    pairs = [*wish.pairs(), *after]
    path = ROUTE_OF["list_events"].path
    async with aclosing(_Following(reach, f"{path}?{urlencode(pairs)}" if pairs else path).blocks()) as blocks:
        async for block in blocks:
            if block.event == "gap":
                yield _read(Gap, block)
            elif block.event != "end":
                event: Event = read_record(Event, block.data)
                yield event


async def follow_output(reach: Reach, task_id: str, after: int) -> AsyncGenerator[OutputLine, None]:
    target = target_of(ROUTE_OF["get_task_output"], (task_id,))
    async with aclosing(_Following(reach, f"{target}?after={after}" if after else target).blocks()) as blocks:
        async for block in blocks:
            if block.event == "line":
                line: OutputLine = read_record(OutputLine, block.data)
                yield line
            elif block.event == "end" and _read(End, block).reason == TASK_IS_FINAL:
                return


class _Following:
    """One stream after the other, each behind the one before."""

    def __init__(self, reach: Reach, target: str) -> None:
        self._reach = reach
        self._client = reach.client()
        self._target = target
        self._last_id = ""
        self._retry_ms: int | None = None
        self._had_begun = False
        self._breaks = 0  # since something came

    async def blocks(self) -> AsyncGenerator[Block, None]:
        """Raises AdeError when the server refuses, or does not come back."""
        while True:
            pause = 0.0
            try:
                async with aclosing(self._stream()) as blocks:
                    async for block in blocks:
                        yield block
            except ServerUnreachable as broken:
                if self._client.is_closed:  # by its owner: nobody wants to hear more
                    raise
                self._check_patience(broken)
            except _Later as later:
                self._check_patience(later.error)
                pause = later.pause_s
            await self._reach.sleep(max(pause, self._pause()))
            self._breaks += 1

    async def _stream(self) -> AsyncGenerator[Block, None]:
        headers = {**self._reach.headers(MEDIA_TYPE), **({"last-event-id": self._last_id} if self._last_id else {})}
        asked = self._client.stream("GET", self._target, headers, timeout=_HEAD_S, silence=_SILENCE_S)
        async with asked as response:
            if response.status >= FIRST_REDIRECT:
                problem = await problem_of_stream(response)
                pause = pause_after_problem(problem, self._reach.patience, sent_before=False)
                raise error_of(problem) if pause is None else _Later(error_of(problem), pause)
            self._had_begun = True
            reader = BlockReader()
            async with aclosing(response.chunks()) as pieces:
                async for piece in pieces:
                    for block in _fed(reader, piece):
                        yield block
                    self._note(reader)

    def _note(self, reader: BlockReader) -> None:
        self._breaks = 0
        self._last_id = reader.last_id or self._last_id
        self._retry_ms = self._retry_ms if reader.retry_ms is None else reader.retry_ms

    def _check_patience(self, error: AdeError) -> None:
        """Raise it if that was once too often. A server that was never reached is told of at once."""
        patience, is_break = self._reach.patience, isinstance(error, ServerUnreachable)
        most = patience.stream_repeats if self._had_begun else 0 if is_break else patience.repeats
        if self._breaks >= most:
            raise error

    def _pause(self) -> float:
        """As the server wanted it, with some chance in it, so that not all come at once; longer from break to break."""
        reach = self._reach
        wanted = 0.0 if self._retry_ms is None else min(self._retry_ms / 1000, reach.patience.longest_pause_s)
        return max(wanted * (0.5 + reach.dice()), backoff_s(self._breaks, reach.dice()))


class _Later(Exception):
    """The server asks for patience."""

    def __init__(self, error: AdeError, pause_s: float) -> None:
        super().__init__(pause_s)
        self.error = error
        self.pause_s = pause_s


def _fed(reader: BlockReader, piece: bytes) -> list[Block]:
    try:
        return reader.feed(piece)
    except ValueError as error:
        raise ServerProblem(f"the server's stream cannot be read: {error}") from None


def _read(kind: type[Any], block: Block) -> Any:
    try:
        return msgspec.json.decode(block.data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServerProblem(f"the server's stream cannot be read ({error})") from None
