"""Output streams of a program, with secrets masked."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from ade.agents.protocols.base import SHORTEST_SECRET
from ade.common.text import HIDDEN

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


class ProcessStream:
    """One output stream of a program: masks it and passes it on."""

    def __init__(self, name: Stream, mask: SecretMask, on_bytes: OnOutput | None) -> None:
        self._name: Stream = name
        self._mask = mask
        self._on_bytes = on_bytes
        self._is_over = False
        self._patience: asyncio.Timeout | None = None

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Read to the end. The next chunk is read after the callback returns, which gives backpressure."""
        while data := await self._next(reader):
            await self._hand_on(self._mask.feed(data))
        await self._hand_on(self._mask.finish())

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
        if data and self._on_bytes is not None:
            await self._on_bytes(self._name, data)
