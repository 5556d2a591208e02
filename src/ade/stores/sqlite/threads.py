"""Where blocking calls are made: in a thread, so that no event loop waits, or at once where there is no loop."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Aside(Protocol):
    async def __call__(self, function: Callable[..., Result], /, *args: Any) -> Result: ...


async def in_thread(function: Callable[..., Result], /, *args: Any) -> Result:
    import asyncio  # a command that only looks at the store does without it, and starts in half the time

    return await asyncio.to_thread(function, *args)


async def at_once(function: Callable[..., Result], /, *args: Any) -> Result:
    return function(*args)
