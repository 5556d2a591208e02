"""More processes at the same store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ade.stores.ports import Clock
from tests.domain import RedisMaintenance, RedisSettings, open_redis
from tests.servers.server import Server


@asynccontextmanager
async def upkeep_of(server: Server, options: RedisSettings, clock: Clock) -> AsyncIterator[RedisMaintenance]:
    """The upkeep of one more store object, as another process has it."""
    stores = await open_redis(server.url, options, clock)
    try:
        assert isinstance(stores.maintenance, RedisMaintenance)
        yield stores.maintenance
    finally:
        await stores.close()
