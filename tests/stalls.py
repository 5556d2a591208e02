"""Stories in real time on a machine that stands still now and then."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

T = TypeVar("T")
_MOST_TRIES = 5
_LOOK_EVERY_S = 0.01


class Watch:
    """The times for which this process did not get on: the longest, and all together."""

    def __init__(self) -> None:
        self.longest_s = self.lost_s = 0.0

    async def look(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = time.monotonic()
            lost, before = max(now - before - 2 * _LOOK_EVERY_S, 0.0), now
            self.longest_s, self.lost_s = max(self.longest_s, lost), self.lost_s + lost


@asynccontextmanager
async def watching() -> AsyncIterator[Watch]:
    """For times that are promised: what the machine took of them does not count."""
    watch = Watch()
    looking = asyncio.create_task(watch.look())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def undisturbed(story: Callable[[], Awaitable[T]], *, stall_s: float) -> T:
    """What the story answers.

    If it fails after the machine stood still for `stall_s`, longer than the story can bear, it is told anew; any other
    failure stands, and so does the last one.
    """
    for _ in range(_MOST_TRIES - 1):
        async with watching() as watch:
            try:
                return await story()
            except (Exception, pytest.fail.Exception):
                if watch.longest_s < stall_s:
                    raise
    return await story()
