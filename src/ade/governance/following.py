"""The newest of something that is kept in documents, for those of one event loop who ask often."""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ade.ports import RULES, Stores
from ade.queue.turn import Turn

T = TypeVar("T")
_OLDEST_S = 1.0  # a hint may be lost, so what is older is looked at again


class Followed(Generic[T]):
    """Read again when the store rings, and when it was not read for a second. `load` is given what was known before,
    so that it can answer the same if nothing is new."""

    def __init__(self, stores: Stores, load: Callable[[Stores, T | None], Awaitable[T]]) -> None:
        self._stores = stores
        self._load = load
        self._known: T | None = None
        self._read_at = 0.0
        self._rings = 0
        self._rings_read = -1  # how many there had been when it was read
        self._reading = Turn()
        self._unfollow: Callable[[], None] | None = None

    async def current(self) -> T:
        """Not older than a second, and newer than any hint. Raises StoreUnavailable rather than answer from memory."""
        known = self._known
        if known is not None and self._is_fresh():
            return known
        async with self._reading:
            known = self._known
            if known is None or not self._is_fresh():
                known = await self._read()
            return known

    def fresh(self) -> T | None:
        """The same without waiting, for any thread; None where it would have to be read."""
        return self._known if self._is_fresh() else None

    def peek(self) -> T | None:
        """What was known last, however old, for any thread; None before the first `current`."""
        return self._known

    def close(self) -> None:
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def _is_fresh(self) -> bool:
        is_young = time.monotonic() - self._read_at < _OLDEST_S
        return is_young and self._rings_read == self._rings

    async def _read(self) -> T:
        if self._unfollow is None:
            self._unfollow = self._stores.hints.follow(RULES, self._ring)
        # Both are taken before the store answers: what changes meanwhile is looked at again.
        rings, at = self._rings, time.monotonic()
        known = self._known = await self._load(self._stores, self._known)
        self._rings_read, self._read_at = rings, at
        return known

    def _ring(self) -> None:
        self._rings += 1
