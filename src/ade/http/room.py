"""Room for large bodies: what comes in is kept until it was read as a whole, so there is a bound to all of them."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ade.core.web.limits import RequestLimits
from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

_SMALL = 262_144
_TOGETHER, _EACH = 16, 4  # times the largest body
_LATER_S = 5


class Room:
    """So many bytes for all, and of those so many for one account. Who finds none waits, and so does who sends: nothing
    of his body is read meanwhile."""

    def __init__(self, limits: RequestLimits) -> None:
        self._largest = limits.body_bytes
        self._most, self._most_each = _TOGETHER * self._largest, _EACH * self._largest
        self._taken: Counter[str] = Counter()
        self._waiting: deque[tuple[str, int, asyncio.Future[None]]] = deque()

    def needed(self, declared: str | None) -> int:
        """0 for a small body. `declared` is its Content-Length; one that says nothing may be of any size."""
        size = int(declared) if declared is not None and declared.isdecimal() and len(declared) < 16 else self._largest
        return 0 if size <= _SMALL else min(size, self._largest)  # what is more is refused

    @asynccontextmanager
    async def taken(self, who: str, size: int, within_s: float) -> AsyncIterator[None]:
        """Raises RequestRefused (503)."""
        try:
            async with asyncio.timeout(within_s):
                await self._take(who, size)
        except TimeoutError:
            raise RequestRefused(
                Fault.UNAVAILABLE, "too many large bodies are on their way; try again later", retry_after=_LATER_S
            ) from None
        try:
            yield
        finally:
            self._give_back(who, size)

    async def _take(self, who: str, size: int) -> None:
        if self._fits(who, size):
            self._taken[who] += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (who, size, turn)
        self._waiting.append(place)
        try:
            await turn
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            else:  # it was given to him at the same moment
                self._give_back(who, size)
            raise

    def _give_back(self, who: str, size: int) -> None:
        self._taken[who] -= size
        if not self._taken[who]:
            del self._taken[who]
        for place in list(self._waiting):  # who came first, but nobody waits for an account that has its part
            following, needed, turn = place
            if self._fits(following, needed):
                self._waiting.remove(place)
                self._taken[following] += needed
                turn.set_result(None)

    def _fits(self, who: str, size: int) -> bool:
        return self._taken.total() + size <= self._most and self._taken[who] + size <= self._most_each
