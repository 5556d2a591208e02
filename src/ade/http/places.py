"""Places for streams: each keeps a connection for as long as somebody listens, so they are counted."""

from collections import Counter
from collections.abc import AsyncIterator

from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

_LATER_S = 5


class Places:
    """So many streams of a server, and of those so many for one account."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self._taken: Counter[str] = Counter()

    def check(self, who: str, *, is_shared: bool = False) -> None:
        """Whether there is one more; an account that is shared by all has no part of its own. Raises RequestRefused."""
        if self._taken.total() >= self._most:
            raise RequestRefused(
                Fault.UNAVAILABLE,
                "all places for streams are taken; try again later, or ask for pages",
                retry_after=_LATER_S,
            )
        if not is_shared and self._taken[who] >= self._most_each:
            raise RequestRefused(
                Fault.TOO_MANY_REQUESTS,
                f"{who} has {self._most_each} streams open, which is all of its part; close some, or ask for pages",
                retry_after=_LATER_S,
            )

    def take(self, who: str) -> None:
        self._taken[who] += 1

    def give_back(self, who: str) -> None:
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]


class PlacedStream:
    """A stream that has its place from the moment it was promised until it is closed, also if it never begins."""

    def __init__(self, chunks: AsyncIterator[bytes], places: Places, who: str) -> None:
        self._chunks, self._places, self._who = chunks, places, who
        self._has_place = True
        places.take(who)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        if self._has_place:
            self._has_place = False
            self._places.give_back(self._who)
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()
