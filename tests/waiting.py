"""Bounded waits for what has no event of its own: look again and again, never longer than a deadline."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
LOOK_EVERY_S = 0.01


class WaitedTooLong(AssertionError):
    """Something that had to happen did not."""


def until(
    look: Callable[[], T | None], what: str, within_s: float = PATIENCE_S, *, despite: tuple[type[Exception], ...] = ()
) -> T:
    """The first true answer of `look`; `what` completes the sentence "waited for ..." when there is none.

    An error named in `despite` counts as "not yet".
    """
    deadline = time.monotonic() + within_s
    while True:
        last_error: Exception | None = None
        try:
            if answer := look():
                return answer
        except despite as error:
            last_error = error
        if time.monotonic() > deadline:
            raise WaitedTooLong(f"waited {within_s:g} s for {what}") from last_error
        time.sleep(LOOK_EVERY_S)


async def eventually(
    look: Callable[[], Awaitable[T | None]], within_s: float = PATIENCE_S, *, every_s: float = LOOK_EVERY_S
) -> T:
    """The first true answer of `look`, in a loop that goes on meanwhile. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while True:
            if answer := await look():
                return answer
            await asyncio.sleep(every_s)


class Watch:
    """The times for which this process did not get on: the longest, and all together."""

    def __init__(self) -> None:
        self.longest_s = self.lost_s = 0.0

    async def look(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now = time.monotonic()
            lost, before = max(now - before - 2 * LOOK_EVERY_S, 0.0), now
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


async def time_until(condition: Callable[[], bool], what: str, within_s: float = 1.5 * PATIENCE_S) -> float:
    """How many seconds it took, without those for which the machine kept this process waiting."""

    async def look() -> bool:
        return condition()

    began = time.monotonic()
    async with watching() as watch:
        try:
            await eventually(look, within_s)
        except TimeoutError:
            raise WaitedTooLong(f"waited {within_s:g} s for {what}") from None
        return time.monotonic() - began - watch.lost_s


async def is_set_within(event: asyncio.Event, within_s: float) -> bool:
    """Whether the event is set before the time is over."""
    try:
        await asyncio.wait_for(event.wait(), within_s)
    except TimeoutError:
        return False
    return True


async def gate_opens(gate: Path, within_s: float = 600.0) -> None:
    """Until this file exists: how another process lets this one go on."""

    async def is_open() -> bool:
        return gate.exists()

    await eventually(is_open, within_s)
