"""Waiting for another process: look again and again, never longer than a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 20.0


class WaitedTooLong(AssertionError):
    """Something that had to happen did not."""


def until(look: Callable[[], T | None], what: str, within_s: float = PATIENCE_S) -> T:
    """The first thing seen that is true; `what` completes the sentence "waited for ..." when there is none."""
    deadline = time.monotonic() + within_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise WaitedTooLong(f"waited {within_s:g} s for {what}")
        time.sleep(0.01)
