"""Calls that come while one is under way go out together with the next: one round trip for many callers."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")


class Batcher(Generic[Ask, Answer]):
    """Sends what callers ask for in batches, one batch at a time for each event loop.

    `send` answers each ask with its answer or an exception that is the ask's own.
    """

    def __init__(
        self,
        send: Callable[[list[Ask]], Awaitable[Sequence[Answer | Exception]]],
        *,
        weigh: Callable[[Ask], int],
        most: int,
    ) -> None:
        self._send = send
        self._weigh = weigh
        self._most = most
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line[Ask, Answer]] = WeakKeyDictionary()

    async def ask(self, ask: Ask) -> Answer:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line()
        future: asyncio.Future[Answer] = loop.create_future()
        line.waiting.append((ask, future))
        if line.sender is None:
            line.sender = loop.create_task(self._send_all(line), name="ade-redis-batch")
        return await future

    async def _send_all(self, line: "_Line[Ask, Answer]") -> None:
        try:
            while line.waiting:
                batch = self._next_batch(line)
                try:
                    answers = await self._send([ask for ask, _ in batch])
                except Exception as error:  # it is raised where it belongs: in every caller of this batch
                    answers = [error] * len(batch)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():  # its caller gave up
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            line.sender = None
            for _, future in line.waiting:  # only when this task was cancelled with its loop
                future.cancel()
            line.waiting.clear()

    def _next_batch(self, line: "_Line[Ask, Answer]") -> "list[tuple[Ask, asyncio.Future[Answer]]]":
        batch = [line.waiting.popleft()]
        weight = self._weigh(batch[0][0])
        while line.waiting and (weight := weight + self._weigh(line.waiting[0][0])) <= self._most:
            batch.append(line.waiting.popleft())
        return batch


class _Line(Generic[Ask, Answer]):
    """Those who wait in one event loop."""

    __slots__ = ("sender", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[Ask, asyncio.Future[Answer]]] = deque()
        self.sender: asyncio.Task[None] | None = None
