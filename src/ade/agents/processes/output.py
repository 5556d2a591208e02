"""What a program prints: without secrets, in lines, and no more of it kept than there is room for."""

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from msgspec import Struct

from ade.agents.protocols.base import HIDDEN, SHORTEST_SECRET, LineSplitter, OutputPiece

Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[Stream, bytes], Awaitable[None]]

CHUNK = 64 * 1024
MASK = HIDDEN.encode()
_LAST_WORDS_S = 2.0  # for a stream that somebody out of reach keeps open after the end


class SecretMask:
    """Replaces secrets in a stream, also one that comes in two pieces.

    Known are each secret as it is and as JSON writes it. What may be the beginning of one is held back.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST_SECRET for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)  # of two that begin alike the longer one is tried first
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if not self._forms:
            return data
        data = self._held + data
        cut = self._first_that_may_go_on(data)
        for match in self._pattern.finditer(data):
            if match.start() < cut < match.end():
                cut = match.start()
        self._held = data[cut:]
        return self._pattern.sub(MASK, data[:cut])

    def finish(self) -> bytes:
        data, self._held = self._held, b""
        return self._pattern.sub(MASK, data) if self._forms else data

    def _first_that_may_go_on(self, data: bytes) -> int:
        """Where the longest end of the data begins with which a secret could begin."""
        cut = len(data)
        for form in self._forms:
            place = data.find(form[:1], max(len(data) - len(form) + 1, 0), cut)
            while place >= 0:
                if form.startswith(data[place:]):
                    cut = place
                    break
                place = data.find(form[:1], place + 1, cut)
        return cut


def _forms(secret: str) -> Iterable[bytes]:
    yield secret.encode("utf-8", "surrogateescape")
    for ascii_only in (True, False):
        yield json.dumps(secret, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogateescape")


class CapturedOutput(Struct, frozen=True, kw_only=True):
    """What is kept of a stream."""

    text: str  # its beginning and its end; a visible mark stands for what was cut from between them
    seen_bytes: int = 0
    cut_bytes: int = 0
    ends_in_mid_line: bool = False  # the last line has no end: whoever wrote it may have been killed meanwhile


class OutputCapture:
    """Keeps the beginning and the end of a stream, half of the room for each."""

    def __init__(self, most_bytes: int) -> None:
        self._head = bytearray()
        self._head_room = most_bytes // 2
        self._tail: deque[bytes] = deque()
        self._tail_room = most_bytes - self._head_room
        self._tail_bytes = 0
        self._seen = 0
        self._last = b"\n"

    def feed(self, data: bytes) -> None:
        if not data:
            return
        self._seen += len(data)
        self._last = data[-1:]
        room = self._head_room - len(self._head)
        self._head += data[:room]
        rest = data[room:]
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= self._tail_room:
            self._tail_bytes -= len(self._tail.popleft())

    def kept(self) -> CapturedOutput:
        tail = b"".join(self._tail)
        tail = tail[max(len(tail) - self._tail_room, 0) :]
        cut = self._seen - len(self._head) - len(tail)
        mark = cut_mark(cut) if cut else b""
        return CapturedOutput(
            text=(bytes(self._head) + mark + tail).decode("utf-8", "replace"),
            seen_bytes=self._seen,
            cut_bytes=cut,
            ends_in_mid_line=self._last != b"\n",
        )


def cut_mark(cut: int) -> bytes:
    return f"\n[... {cut:,} bytes cut ...]\n".encode()


class ProcessStream:
    """One stream of a program: masked, handed on, and some of it kept."""

    def __init__(
        self,
        name: Stream,
        mask: SecretMask,
        keeping: OutputCapture,
        lines: LineSplitter | None,
        on_bytes: OnOutput | None,
        on_line: OnOutput | None,
    ) -> None:
        self.keeping = keeping
        self._name: Stream = name
        self._mask = mask
        self._lines = lines
        self._on_bytes = on_bytes
        self._on_line = on_line
        self._is_over = False
        self._patience: asyncio.Timeout | None = None

    async def read(self, reader: asyncio.StreamReader) -> None:
        """To its end. The next piece is taken when the callbacks are done with this one."""
        while data := await self._next(reader):
            await self._hand_on(self._mask.feed(data))
        await self._hand_on(self._mask.finish())
        if self._on_line is not None and self._lines is not None:
            rest = self._lines.rest()
            if rest is not None:
                await self._on_line(self._name, _whole(rest))

    def hurry(self) -> None:
        """Nothing more is written: what was is read, but no end is waited for that never comes."""
        self._is_over = True
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + _LAST_WORDS_S)

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(_LAST_WORDS_S if self._is_over else None) as self._patience:
                return await reader.read(CHUNK)
        except TimeoutError:
            return b""
        finally:
            self._patience = None

    async def _hand_on(self, data: bytes) -> None:
        if not data:
            return
        self.keeping.feed(data)
        if self._on_bytes is not None:
            await self._on_bytes(self._name, data)
        if self._on_line is not None and self._lines is not None:
            for line in self._lines.feed(data):
                await self._on_line(self._name, _whole(line))


def _whole(line: OutputPiece) -> bytes:
    """The line, or its beginning and a mark if it was too long."""
    return line.data + (cut_mark(line.dropped).strip() if line.dropped else b"")
