"""Waiting for a server, which may not be reachable yet."""

from collections.abc import Callable
from typing import TypeVar

import redis

from tests import waiting
from tests.waiting import PATIENCE_S

__all__ = ["PATIENCE_S", "until"]
T = TypeVar("T")


def until(look: Callable[[], T | None], what: str, within_s: float = PATIENCE_S) -> T:
    """The first true answer of `look`; `what` completes the sentence "waited for ..." when there is none.

    A server that cannot be reached is not seen yet: while roles change, servers close connections on their own.
    """
    return waiting.until(look, what, within_s, despite=(redis.ConnectionError, redis.TimeoutError))
