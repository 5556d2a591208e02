"""Wake-ups inside one process, the base of those between processes."""

import asyncio
import threading

from ade.ports import DONE, STOP, WORK

TOPICS = (WORK, STOP, DONE)


class _Topic:
    """Who waits for one topic in this process."""

    def __init__(self) -> None:
        self.generation = 0
        self.waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []


class LocalHints:
    """Wake-ups inside one process; the base of those across processes."""

    def __init__(self) -> None:
        self._topics = {topic: _Topic() for topic in TOPICS}
        self._lock = threading.Lock()

    def ring(self, topic: str) -> None:
        self._wake(topic)

    def generation(self, topic: str) -> int:
        return self._topics[topic].generation

    async def wait(self, topic: str, seen: int, timeout: float) -> None:
        state = self._topics[topic]
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if state.generation != seen:
                return
            state.waiters.append((loop, future))
        handle = loop.call_later(timeout, _finish, future)
        try:
            await future
        finally:
            handle.cancel()
            with self._lock:
                state.waiters = [waiter for waiter in state.waiters if waiter[1] is not future]

    def _wake(self, topic: str) -> None:
        with self._lock:
            state = self._topics[topic]
            state.generation += 1
            waiters, state.waiters = state.waiters, []
        for loop, future in waiters:
            try:
                loop.call_soon_threadsafe(_finish, future)
            except RuntimeError:  # that loop is closed
                continue

    def close(self) -> None:
        for topic in TOPICS:
            self._wake(topic)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
