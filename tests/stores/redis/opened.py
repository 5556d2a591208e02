"""More processes at the same store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ade.ports import Clock
from ade.stores.redis.opening import open_redis
from ade.stores.redis.options import RedisOptions
from ade.stores.redis.upkeep import RedisUpkeep
from tests.servers.server import Server


@asynccontextmanager
async def upkeep_of(server: Server, options: RedisOptions, clock: Clock) -> AsyncIterator[RedisUpkeep]:
    """The upkeep of one more store object, as another process has it."""
    stores = await open_redis(server.url, options, clock)
    try:
        assert isinstance(stores.upkeep, RedisUpkeep)
        yield stores.upkeep
    finally:
        await stores.close()
