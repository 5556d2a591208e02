"""Calls and streams that work with `await` or, without an event loop, with `.wait()` on a portal thread."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from inspect import CORO_CREATED, getcoroutinestate
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ade.errors import WouldBlock

if TYPE_CHECKING:
    from ade.common.loop_thread import PortalThread


T = TypeVar("T")


class Portal:
    """An event loop in a thread, for callers that have none. It starts with the first call.

    The thread is a daemon, so an app that was never closed does not keep Python alive.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop_thread: PortalThread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result. Raises WouldBlock on a thread that runs an event loop."""
        if is_loop_running():
            coroutine.close()
            raise WouldBlock
        with self._lock:  # a coroutine submitted before `stop` is cancelled by it
            future = self._started().submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # after Ctrl-C, no one waits for it
            raise

    def stop(self) -> None:
        """Stop the thread, unless it is the caller. It can be started again."""
        with self._lock:
            loop_thread = self._loop_thread
            if loop_thread is None or loop_thread.is_current:
                return
            self._loop_thread = None
        loop_thread.stop()

    def _started(self) -> "PortalThread":
        if self._loop_thread is None or not self._loop_thread.is_usable:
            from ade.common.loop_thread import PortalThread  # asyncio: 13 ms and 3 MiB, which many commands save

            self._loop_thread = PortalThread()
        return self._loop_thread


def is_loop_running() -> bool:
    """Return whether the calling thread runs an event loop and must not block."""
    asyncio = sys.modules.get("asyncio")  # if not loaded, no loop runs; another thread might be loading it
    running = getattr(asyncio, "_get_running_loop", None)  # raises no exception, which would be slow
    return running is not None and running() is not None


T_co = TypeVar("T_co", covariant=True)


class Call(Coroutine[Any, Any, T_co]):
    """Use it once: `await call`, `asyncio.create_task(call)` or `call.wait()`. Forgotten, it does nothing."""

    __slots__ = ("_coroutine", "_portal")

    def __init__(self, coroutine: Coroutine[Any, Any, T_co], portal: Portal) -> None:
        self._coroutine = coroutine
        self._portal = portal

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._coroutine.__await__()

    def wait(self) -> T_co:
        """Wait for the answer in a thread that runs no event loop."""
        return self._portal.run(self._coroutine)

    def send(self, value: Any, /) -> Any:
        return self._coroutine.send(value)

    def throw(self, error: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        return self._coroutine.throw(error) if value is None else self._coroutine.throw(error, value, trace)

    def close(self) -> None:
        self._coroutine.close()


class BlockingCall(Call[T_co]):
    """A call with a faster synchronous implementation for a thread without an event loop.

    `direct` must do the whole call, because the coroutine creates tasks with other IDs.
    """

    __slots__ = ("_direct",)

    def __init__(self, coroutine: Coroutine[Any, Any, T_co], portal: Portal, direct: Callable[[], T_co]) -> None:
        self._coroutine = coroutine
        self._portal = portal
        self._direct = direct

    def wait(self) -> T_co:
        if is_loop_running() or getcoroutinestate(self._coroutine) != CORO_CREATED:
            return super().wait()  # raises the appropriate error
        self._coroutine.close()  # so that it does not warn that it was never awaited
        return self._direct()


class ClosingCall(Call[None]):
    """A call that also stops the portal thread."""

    def wait(self) -> None:
        super().wait()
        self._portal.stop()


class Stream(Generic[T_co]):
    """Items that come one after the other: `async for` on an event loop, a plain `for` elsewhere."""

    __slots__ = ("_items", "_portal")

    def __init__(self, items: Callable[[], AsyncIterator[T_co]], portal: Portal) -> None:
        self._items = items
        self._portal = portal

    def __aiter__(self) -> AsyncIterator[T_co]:
        return self._items()

    def __iter__(self) -> Iterator[T_co]:
        items = self._items()
        while (found := self._portal.run(_next(items))) is not None:
            yield found[0]


async def _next(items: AsyncIterator[T_co]) -> tuple[T_co] | None:
    async for item in items:
        return (item,)
    return None


async def either(event: "asyncio.Event", seconds: float) -> None:
    """Return when the event is set or the time has passed."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
