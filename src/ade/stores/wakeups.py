"""Wake-ups inside one process, and the base class of wake-ups between processes."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from ade.stores.ports import AGENT, DONE, INBOX, LOCK, RULES, STOP, WORK

TOPICS = (WORK, STOP, DONE, LOCK, AGENT, RULES, INBOX)


class _Topic:
    """The waiters and subscribers of one topic in this process."""

    def __init__(self) -> None:
        self.generation = 0
        self.waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.followers: tuple[_WakeupSubscriber, ...] = ()


class _WakeupSubscriber:
    """A callback that runs on the event loop of its subscriber."""

    __slots__ = ("_callback", "_is_called", "_loop")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._is_called = False

    def tell(self, here: asyncio.AbstractEventLoop | None) -> None:
        """Call back immediately on the same loop; across loops, merge wake-ups until the callback runs."""
        if self._loop is here:
            self._callback()
        elif not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # that loop is closed
                self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        self._is_called = False
        self._callback()


class LocalWakeups:
    """Wakeups within one process, for in-memory stores; subclasses add other processes."""

    def __init__(self) -> None:
        self._topics = {topic: _Topic() for topic in TOPICS}
        self._lock = threading.Lock()

    def ring(self, topic: str) -> None:
        self._wake(topic)

    def generation(self, topic: str) -> int:
        return self._topics[topic].generation

    def lag_s(self, topic: str) -> float:
        return 0.0  # every sender is in this process

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

    def follow(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        state, follower = self._topics[topic], _WakeupSubscriber(callback)
        with self._lock:
            state.followers += (follower,)

        def unfollow() -> None:
            with self._lock:
                state.followers = tuple(each for each in state.followers if each is not follower)

        return unfollow

    async def listen(self) -> None:
        await asyncio.Event().wait()  # wake-ups already arrive directly

    def _wake(self, topic: str) -> None:
        with self._lock:
            state = self._topics[topic]
            state.generation += 1
            waiters, state.waiters = state.waiters, []
        here = running_loop() if waiters or state.followers else None
        for follower in state.followers:
            follower.tell(here)
        for loop, future in waiters:
            if loop is here:  # saves a system call and a loop iteration
                _finish(future)
                continue
            try:
                loop.call_soon_threadsafe(_finish, future)
            except RuntimeError:  # that loop is closed
                continue

    def _is_awaited(self) -> bool:
        """Return whether there are subscribers or waiters that are not being cancelled."""
        with self._lock:
            return any(
                topic.followers or any(not future.done() for _, future in topic.waiters)
                for topic in self._topics.values()
            )

    def close(self) -> None:
        for topic in TOPICS:
            self._wake(topic)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop of this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
