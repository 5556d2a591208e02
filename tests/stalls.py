"""Stories in real time on a machine that stands still now and then."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.waiting import watching

T = TypeVar("T")
_MOST_TRIES = 5


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
