"""What the methods of app and client answer: something to await, or to `.wait()` for where there is no event loop."""

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from inspect import CORO_CREATED, getcoroutinestate
from types import TracebackType
from typing import Any, Generic, TypeVar

from ade.calls.portal import Portal, is_loop_running

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


class DirectCall(Call[T_co]):
    """A call that a thread without an event loop makes by itself, in a way of its own.

    `direct` must do all of it: the coroutine makes tasks with other ids.
    """

    __slots__ = ("_direct",)

    def __init__(self, coroutine: Coroutine[Any, Any, T_co], portal: Portal, direct: Callable[[], T_co]) -> None:
        self._coroutine = coroutine
        self._portal = portal
        self._direct = direct

    def wait(self) -> T_co:
        if is_loop_running() or getcoroutinestate(self._coroutine) != CORO_CREATED:
            return super().wait()  # which says what is wrong with that
        self._coroutine.close()  # as one that was used
        return self._direct()


class Closing(Call[None]):
    """A call after which the thread it may have run on ends too."""

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
