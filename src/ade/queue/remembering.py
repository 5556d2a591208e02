"""Definitions remembered for a moment, so that no request reads all of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from ade.core.records import Definition
from ade.ports import Stores
from ade.queue.names import known_names
from ade.queue.turn import Turn

_FRESH_S = 1.0
_APART_S = 0.1  # two reads, at least: names that do not exist must not make the store busy


class KnownNames:
    """What workers have registered, by name. A name that is missing is looked for again, so that a new one is found
    at once, or after the tenth of a second that is between two reads; all who wait share the next one."""

    def __init__(
        self,
        stores: Stores,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._sleep = sleep
        self._known: Mapping[str, Definition] = {}
        self._read_at = float("-inf")
        self._turn = Turn()

    async def including(self, names: Collection[str]) -> Mapping[str, Definition]:
        """Definitions at most a second old, with those of these names if there are any."""
        asked_at = self._clock()
        if not self._suffices(names, asked_at):
            async with self._turn:
                if not self._suffices(names, asked_at):
                    await self._read()
        return self._known

    def _suffices(self, names: Collection[str], asked_at: float) -> bool:
        if self._read_at > asked_at:  # while this one waited
            return True
        return asked_at < self._read_at + _FRESH_S and all(name in self._known for name in names)

    async def _read(self) -> None:
        left_s = self._read_at + _APART_S - self._clock()
        if left_s > 0:
            await self._sleep(left_s)
        at = self._clock()
        self._known = await known_names(self._stores)
        self._read_at = at
