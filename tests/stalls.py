"""Stories in real time on a machine that stands still now and then."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

T = TypeVar("T")
_MOST_TRIES = 5
_LOOK_EVERY_S = 0.01


class _Watch:
    """The longest time for which this process did not get on."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def look(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = time.monotonic()
            self.longest_s, before = max(self.longest_s, now - before - _LOOK_EVERY_S), now


async def undisturbed(story: Callable[[], Awaitable[T]], *, stall_s: float) -> T:
    """What the story answers.

    If it fails after the machine stood still for `stall_s`, longer than the story can bear, it is told anew; any other
    failure stands, and so does the last one.
    """
    for _ in range(_MOST_TRIES - 1):
        watch = _Watch()
        looking = asyncio.create_task(watch.look())
        try:
            return await story()
        except (Exception, pytest.fail.Exception):
            if watch.longest_s < stall_s:
                raise
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    return await story()
