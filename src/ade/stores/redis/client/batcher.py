"""Batching of calls: calls that arrive while one is in progress share the next round trip."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

SendBatch = TypeVar("SendBatch")
Answer = TypeVar("Answer")


class Batcher(Generic[SendBatch, Answer]):
    """Sends the requests of callers in batches, one batch at a time per event loop.

    `send` returns a response or an exception for each request. With `lone`, a caller without competitors sends its
    request itself. That saves a task and two loop iterations, a third of the cost of such a call. The call is then
    cancelled with its caller, so `send` must not do anything vital after the response.
    """

    def __init__(
        self,
        send: Callable[[list[SendBatch]], Awaitable[Sequence[Answer | Exception]]],
        *,
        weigh: Callable[[SendBatch], int],
        most: int,
        lone: bool = False,
    ) -> None:
        self._send = send
        self._lone = lone
        self._weigh = weigh
        self._most = most
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _BatchQueue[SendBatch, Answer]] = WeakKeyDictionary()

    async def ask(self, ask: SendBatch) -> Answer:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _BatchQueue()
        if line.is_busy or line.is_crowded or not self._lone:
            future: asyncio.Future[Answer] = loop.create_future()
            line.waiting.append((ask, future))
            if not line.is_busy:
                self._begin(line)
            return await future
        line.is_busy = True
        try:
            [answer] = await self._send([ask])
        finally:
            line.is_busy = False
            if any(not future.done() for _, future in line.waiting):
                self._begin(line)
            else:
                line.waiting.clear()  # their callers were cancelled, perhaps with the loop itself
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _begin(self, line: "_BatchQueue[SendBatch, Answer]") -> None:
        line.is_busy = True
        line.sender = asyncio.get_running_loop().create_task(self._send_all(line), name="ade-redis-batch")

    async def _send_all(self, line: "_BatchQueue[SendBatch, Answer]") -> None:
        try:
            while line.waiting:
                batch = self._next_batch(line)
                line.is_crowded = len(batch) > 1
                try:
                    answers = await self._send([ask for ask, _ in batch])
                except Exception as error:  # raised in every caller of this batch
                    answers = [error] * len(batch)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():  # its caller was cancelled
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            line.sender, line.is_busy = None, False
            for _, future in line.waiting:  # not empty only if this task was cancelled with its loop
                future.cancel()
            line.waiting.clear()

    def _next_batch(self, line: "_BatchQueue[SendBatch, Answer]") -> "list[tuple[SendBatch, asyncio.Future[Answer]]]":
        batch = [line.waiting.popleft()]
        weight = self._weigh(batch[0][0])
        while line.waiting and (weight := weight + self._weigh(line.waiting[0][0])) <= self._most:
            batch.append(line.waiting.popleft())
        return batch


class _BatchQueue(Generic[SendBatch, Answer]):
    """The waiting requests of one event loop."""

    __slots__ = ("is_busy", "is_crowded", "sender", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[SendBatch, asyncio.Future[Answer]]] = deque()
        self.sender: asyncio.Task[None] | None = None  # a task without a reference can be garbage-collected
        self.is_busy = False
        self.is_crowded = False  # the last batch had several requests, so the next one probably has too


class UnbatchedCalls(Generic[SendBatch, Answer]):
    """The interface of Batcher without batching, for threads without an event loop."""

    def __init__(self, send: Callable[[list[SendBatch]], Awaitable[Sequence[Answer | Exception]]]) -> None:
        self._send = send

    async def ask(self, ask: SendBatch) -> Answer:
        [answer] = await self._send([ask])
        if isinstance(answer, Exception):
            raise answer
        return answer
