"""The line to a primary under sentinels: whoever is promoted is found."""

import asyncio

import pytest

from ade.errors import StoreUnavailable
from ade.stores.redis.client.client import RedisClient
from tests.domain import RedisSettings
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.sentinel import Sentinels
from tests.stores.redis.counting import Load, count, counted, linked


@pytest.fixture
def watched(server_binary: Binary, server_pool: Pool) -> Sentinels:
    return server_pool.sentinels(server_binary.kind)


async def test_the_sentinels_are_asked_for_the_primary(watched: Sentinels) -> None:
    async with linked(watched.url) as link:
        assert await count(link, "x") == 1
        assert str(link.where(0)) == watched.primary().address


async def test_one_sentinel_that_answers_is_enough(watched: Sentinels) -> None:
    async with linked(f"redis+sentinel://127.0.0.1:1,{watched.sentinels[1].address}/mymaster") as link:
        assert await count(link, "x") == 1


async def test_a_service_nobody_watches_is_named(watched: Sentinels) -> None:
    link = RedisClient.to(watched.url.replace("mymaster", "other"), RedisSettings(patience_s=0.5))

    with pytest.raises(StoreUnavailable, match=r"other.*watches no service"):
        await link.ask(0, ("PING",))
    await link.close()


@pytest.mark.faults
async def test_a_primary_that_crashes_is_replaced_and_what_was_confirmed_is_there(watched: Sentinels) -> None:
    async with linked(watched.url, RedisSettings(command_timeout_s=0.5, confirm_timeout_s=0.4)) as link:
        await asyncio.to_thread(watched.wait_ok)
        for number in range(20):
            await count(link, f"confirmed-{number}", confirm=True)
        load = Load(link)
        await load.go_on(20)
        victim = await asyncio.to_thread(watched.kill_primary)
        await load.go_on(100)
        await load.stop()

        assert str(link.where(0)) != victim.address
        assert await counted(link) >= 20


@pytest.mark.faults
async def test_the_promoted_replica_is_found_under_load(watched: Sentinels) -> None:
    async with linked(watched.url, RedisSettings(command_timeout_s=0.5, confirm_timeout_s=0.4)) as link:
        load = Load(link)
        await load.go_on(50)
        promoted = await asyncio.to_thread(watched.failover)
        async with asyncio.timeout(90):  # the old primary takes writes until the sentinels have told it
            while str(link.where(0)) != promoted.address:
                await load.go_on(10)
        await load.go_on(50)
        assert await load.stop() >= 110
