"""Bounded waits for what has no event of its own: look again and again, never longer than a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
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


async def eventually(look: Callable[[], Awaitable[T | None]], within_s: float = PATIENCE_S) -> T:
    """The first true answer of `look`, in a loop that goes on meanwhile. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while True:
            if answer := await look():
                return answer
            await asyncio.sleep(LOOK_EVERY_S)


async def time_until(condition: Callable[[], bool], what: str, within_s: float = 1.5 * PATIENCE_S) -> float:
    """How many seconds it took, without those for which the machine kept this process waiting."""
    began, stalled_s = time.monotonic(), 0.0
    while not condition():
        if time.monotonic() - began > within_s:
            raise WaitedTooLong(f"waited {within_s:g} s for {what}")
        asleep = time.monotonic()
        await asyncio.sleep(LOOK_EVERY_S)
        stalled_s += max(time.monotonic() - asleep - 2 * LOOK_EVERY_S, 0.0)
    return time.monotonic() - began - stalled_s


async def gate_opens(gate: Path, within_s: float = 600.0) -> None:
    """Until this file exists: how another process lets this one go on."""

    async def is_open() -> bool:
        return gate.exists()

    await eventually(is_open, within_s)
