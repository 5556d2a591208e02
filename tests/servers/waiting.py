"""Waiting for another process: look again and again, never longer than a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

import redis

T = TypeVar("T")

PATIENCE_S = 60.0


class WaitedTooLong(AssertionError):
    """Something that had to happen did not."""


def until(look: Callable[[], T | None], what: str, within_s: float = PATIENCE_S) -> T:
    """The first thing seen that is true; `what` completes the sentence "waited for ..." when there is none.

    A server that cannot be reached is not seen yet: while roles change, servers close connections on their own.
    """
    deadline = time.monotonic() + within_s
    while True:
        last_error: Exception | None = None
        try:
            seen = look()
            if seen:
                return seen
        except (redis.ConnectionError, redis.TimeoutError) as unreachable:
            last_error = unreachable
        if time.monotonic() > deadline:
            raise WaitedTooLong(f"waited {within_s:g} s for {what}") from last_error
        time.sleep(0.01)
