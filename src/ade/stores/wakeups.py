"""Wake-ups inside one process, the base class of wake-ups between processes, and the cache that they keep current."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

from ade.errors import StoreError, StoreUnavailable
from ade.stores.ports import AGENT, DONE, INBOX, LOCK, LOST, RULES, STOP, WORK, Stores

T = TypeVar("T")
TOPICS = (WORK, STOP, DONE, LOCK, AGENT, RULES, INBOX, LOST)


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

    def tell(self, here: "asyncio.AbstractEventLoop | None") -> None:
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

    tolerance_s = 0.0  # the store is in one place

    def __init__(self) -> None:
        self._topics = {topic: _Topic() for topic in TOPICS}
        self.announced = dict.fromkeys(TOPICS, 0)
        self._lock = threading.Lock()

    def notify(self, topic: str) -> None:
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

    def _wake(self, topic: str, *, is_announced: bool = True) -> None:
        with self._lock:
            state = self._topics[topic]
            state.generation += 1
            self.announced[topic] += is_announced
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


def running_loop() -> "asyncio.AbstractEventLoop | None":
    """Return the running event loop of this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class SingleFlight:
    """A lock for shared reads. When the store fails the lock holder, all current waiters get the same error.

    Otherwise each waiter would wait in turn for the store to time out.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0
        self._again: Callable[[], StoreError] = StoreError

    async def __aenter__(self) -> None:
        """Acquire the lock. Raises StoreError if the store failed another holder while waiting."""
        seen = self._failures
        await self._lock.acquire()
        if self._failures != seen:
            self._lock.release()
            raise self._again()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StoreError):
            self._failures += 1
            self._again = partial(type(error), error.detail)
        self._lock.release()


_OLDEST_S = 0.9  # a changed rule takes effect everywhere within 1 s, which includes the read
_CHECK_AFTER_S = 0.6  # asking for changes is cheap, so it happens early enough for an enqueue to end within the second
_REREAD_AFTER_S = 30.0  # a safety net for documents that were changed without ADE
_SOON_S = 0.5  # how long a caller with an old value waits for a new one


class Refresh(Generic[T]):
    """Reads a value again for callers that have an old one, and can go on with it if the store does not respond.

    The first callers wait a moment for the read. While the store does not respond, no further caller waits.
    """

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._reading: asyncio.Task[T] | None = None
        self._is_failing = False

    async def soon(self) -> T | None:
        """Return the value; None if the store does not respond. Raises other errors of the store."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._attempt())
            self._reading.add_done_callback(_retrieve)
        reading = self._reading
        await asyncio.wait({reading}, timeout=0 if self._is_failing else _SOON_S)
        if not reading.done():
            self._is_failing = True
            return None
        try:
            return reading.result()
        except StoreUnavailable:
            return None

    async def _attempt(self) -> T:
        is_failing = False
        try:
            return await self._read()
        except StoreUnavailable:
            is_failing = True
            raise
        finally:
            self._is_failing, self._reading = is_failing, None


def _retrieve(reading: "asyncio.Task[T]") -> None:
    """Mark the error of a read as handled, because no caller may have waited for it."""
    if not reading.cancelled():
        reading.exception()


class CachedDocument(Generic[T]):
    """Caches a value while the store can tell without a read whether rules have changed.

    The value is read again after a change and after 30 seconds. While changes might be missed (before the subscription
    works, after its connection broke, or on a network file system), it is read again after one second.
    `load` receives the previous value, so that it can return the same object if nothing has changed.
    """

    def __init__(
        self,
        stores: Stores,
        load: Callable[[Stores, T | None], Awaitable[T]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._load = load
        self._clock = clock
        self._value: T | None = None
        self._generation = -1  # notification counter at the time of the read
        self._announced = -1  # the number of changes that were announced before the read
        self._read_at = 0.0
        self._current_at = 0.0  # the last moment at which the value is known to have been current
        self._reading = SingleFlight()
        self._refresh = Refresh(self.current)

    async def current(self) -> T:
        """Return the value, at most one second old and newer than any notification.

        Raises StoreUnavailable instead of returning a stale value.
        """
        value = self.fresh()
        if value is not None:
            return value
        async with self._reading:
            value = self.fresh()
            return await self._read() if value is None else value

    async def latest(self) -> tuple[T, bool]:
        """Return the value, and whether it is stale: the part of the store that has it does not respond.

        A stale value was current at most `Wakeups.tolerance_s` ago, and no change was announced since. Raises
        StoreUnavailable if there is none.
        """
        value = self.fresh()
        if value is not None:
            return value, False
        if self._stale() is None:
            return await self.current(), False
        value = await self._refresh.soon()
        if value is not None:
            return value, False
        stale = self._stale()
        if stale is None:  # it became too old, or was changed
            raise StoreUnavailable("the rules cannot be read, and those read before are no longer in force or too old")
        return stale, True

    def fresh(self) -> T | None:
        """The same as `current` without waiting, for any thread; None if the value must be read."""
        now, wakeups = self._clock(), self._stores.wakeups
        if now - self._current_at >= _CHECK_AFTER_S:
            lag_s = wakeups.lag_s(RULES)
            if lag_s >= _OLDEST_S or now - self._read_at >= _REREAD_AFTER_S:
                return None
            self._current_at = now - lag_s
        generation, value = self._generation, self._value  # `_read` writes them in the opposite order
        return value if wakeups.generation(RULES) == generation else None

    def peek(self) -> T | None:
        """Return the last value, however old, for any thread; None before the first `current`."""
        return self._value

    def _stale(self) -> T | None:
        """Return the last value if it can be used while it cannot be read."""
        wakeups = self._stores.wakeups
        is_recent = self._clock() - self._current_at < wakeups.tolerance_s
        return self._value if is_recent and wakeups.announced[RULES] == self._announced else None

    async def _read(self) -> T:
        # Taken before the read, so that a change during the read causes another one. `lag_s` subscribes.
        wakeups = self._stores.wakeups
        wakeups.lag_s(RULES)
        generation, announced, at = wakeups.generation(RULES), wakeups.announced[RULES], self._clock()
        value = self._value = await self._load(self._stores, self._value)
        self._read_at = self._current_at = at
        self._announced = announced
        self._generation = generation
        return value
