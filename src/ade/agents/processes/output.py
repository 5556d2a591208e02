"""Output streams of a program: secrets masked, split into lines, and kept up to a size limit."""

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
_LAST_WORDS_S = 2.0  # for a stream that an unreachable process keeps open after the exit


class SecretMask:
    """Masks secrets in a stream, even one that is split across chunks.

    Each secret is matched verbatim and in its JSON form. A possible prefix of a secret is held back.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST_SECRET for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)  # so that of two with a common prefix the longer one matches
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Mask a chunk. The end is held back if it might be the start of a secret."""
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
        """Return the data that was held back."""
        data, self._held = self._held, b""
        return self._pattern.sub(MASK, data) if self._forms else data

    def _first_that_may_go_on(self, data: bytes) -> int:
        """Return the start of the longest suffix that could be the prefix of a secret."""
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
    """The kept part of a stream."""

    text: str  # the start and the end; a visible marker replaces the part cut from the middle
    seen_bytes: int = 0
    cut_bytes: int = 0
    ends_in_mid_line: bool = False  # the last line has no line end: its writer might have been killed


class OutputCapture:
    """Keeps the start and the end of a stream, each up to half of the limit."""

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
    """Return the marker for bytes that were cut."""
    return f"\n[... {cut:,} bytes cut ...]\n".encode()


class ProcessStream:
    """One output stream of a program: masks it, passes it on, and keeps a part."""

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
        """Read to the end. The next chunk is read after the callbacks return, which gives backpressure."""
        while data := await self._next(reader):
            await self._hand_on(self._mask.feed(data))
        await self._hand_on(self._mask.finish())
        if self._on_line is not None and self._lines is not None:
            rest = self._lines.rest()
            if rest is not None:
                await self._on_line(self._name, _whole(rest))

    def hurry(self) -> None:
        """After the exit, read what was written, but do not wait for an end of file that might never come."""
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
    """Return the line, or its start and a marker if it was too long."""
    return line.data + (cut_mark(line.dropped).strip() if line.dropped else b"")
