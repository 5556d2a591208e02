"""UpkeepStore on Redis."""

from collections.abc import AsyncIterator

from ade.core.errors import StoreError
from ade.ports import Health
from ade.stores.redis.invariants import broken_invariants
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.timing import Timing


class RedisUpkeep:
    def __init__(self, link: Link, places: Partitions, timing: Timing) -> None:
        self._link = link
        self._places = places
        self._timing = timing

    async def check_invariants(self) -> list[str]:
        return await broken_invariants(self._link, self._places)

    async def health(self) -> Health:
        return Health(facts={}, warnings=[])

    async def checkpoint(self) -> None:
        return None

    async def backup(self, target: str) -> AsyncIterator[tuple[int, int]]:
        raise StoreError("a Redis server keeps its own copies; use BGSAVE")
        yield 0, 0
