"""Real servers, of each kind in turn, and what stands on them. A module may name a `server` of its own."""

from collections.abc import AsyncIterator, Iterator

import pytest

from ade.testing import TestClock
from tests.conformance.backends import sound
from tests.conformance.scene import Scene
from tests.domain import RedisSettings, open_redis
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.proxy import Proxy
from tests.servers.server import Server
from tests.stores.redis.full_partitions import Village, village
from tests.stores.redis.ports import Ports, open_ports


@pytest.fixture
def server(server_binary: Binary, server_pool: Pool) -> Server:
    return server_pool.standalone(server_binary.kind)


@pytest.fixture
def path(server: Server) -> Iterator[Proxy]:
    """A line to the server that can break."""
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def scene(server: Server, clock: TestClock) -> AsyncIterator[Scene]:
    async with sound(await open_redis(server.url, RedisSettings(allow_volatile=True), clock)) as stores:
        yield Scene(stores, clock)


@pytest.fixture
async def settled(server: Server) -> AsyncIterator[Village]:
    async with village(server) as built:
        yield built


@pytest.fixture
async def ports(server: Server) -> AsyncIterator[Ports]:
    """On one server."""
    async with open_ports(server.url) as opened:
        yield opened
