"""Taking turns to read what is then remembered for all."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType

from ade.core.errors import StoreError


class Turn:
    """A lock. When the store fails whoever has it, all who waited meanwhile are told the same: each by himself would
    wait as long for the store as the one before him, and the last of them for ever."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0
        self._again: Callable[[], StoreError] = StoreError

    async def __aenter__(self) -> None:
        """Raises StoreError."""
        seen = self._failures
        await self._lock.acquire()
        if self._failures != seen:
            self._lock.release()
            raise self._again()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StoreError):
            self._failures += 1
            self._again = partial(type(error), error.detail)
        self._lock.release()
