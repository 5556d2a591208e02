"""A server that dies, hangs, forgets scripts or throws everybody out, while producers and workers are at it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ade import Status
from tests.domain import RedisSettings
from tests.faults.on_servers import ServerSite, site_on, under_load
from tests.servers.binaries import Binary
from tests.servers.plugin import binary_or_skip
from tests.servers.server import Options, Server

pytestmark = [pytest.mark.faults]

ALWAYS = Options(appendonly=True, appendfsync="always")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(binary_or_skip("valkey"), ALWAYS) as started:
        yield started


@pytest.fixture
async def site(server: Server, tmp_path: Path) -> AsyncIterator[ServerSite]:
    async with site_on(server.url, tmp_path, RedisSettings()) as made:
        yield made


async def test_a_killed_server_that_comes_back_has_lost_nothing_it_acknowledged(
    server_binary: Binary, tmp_path: Path
) -> None:
    with Server(server_binary, ALWAYS) as server:
        async with site_on(server.url, tmp_path, RedisSettings()) as site:
            await site.crew()
            async with under_load(site) as load:
                for _ in range(6):
                    server.kill()
                    await asyncio.to_thread(server.start)
                    await load.more()
            assert load.acknowledged
            await site.judge(load.acknowledged)


@pytest.mark.long
@pytest.mark.realtime
async def test_a_server_that_stands_still_for_a_while_costs_nothing_but_time(site: ServerSite, server: Server) -> None:
    await site.crew(lease_s=30.0, heartbeat_s=2.0)
    async with under_load(site) as load:
        server.pause()
        threading.Timer(12.0, server.resume).start()
        await load.more(within_s=60.0)
    assert load.acknowledged
    await site.judge(load.acknowledged)


@pytest.mark.long
@pytest.mark.realtime
async def test_a_server_that_stands_still_for_longer_than_the_leases(site: ServerSite, server: Server) -> None:
    await site.crew(lease_s=10.0, heartbeat_s=2.0)
    async with under_load(site) as load:
        server.pause()
        threading.Timer(30.0, server.resume).start()
        await load.more(within_s=90.0)
    assert load.acknowledged
    await site.judge(load.acknowledged)


async def test_connections_that_are_killed_again_and_again(site: ServerSite, server: Server) -> None:
    await site.crew()
    async with under_load(site) as load:
        killed = 0
        with server.client() as client:
            while len(load.acknowledged) < 400:
                killed += int(str(client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")))
                client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                await load.more(1)
    assert killed > 20
    assert load.troubles == []
    await site.judge(load.acknowledged)


async def test_scripts_that_are_forgotten_are_sent_again(site: ServerSite, server: Server) -> None:
    await site.crew()
    async with under_load(site) as load:
        with server.client() as client:
            while len(load.acknowledged) < 400:
                client.execute_command("SCRIPT", "FLUSH")
                await load.more(1)
    assert load.troubles == []
    await site.judge(load.acknowledged)


@pytest.mark.long
@pytest.mark.realtime
async def test_a_handler_that_holds_the_interpreter_for_longer_than_its_lease_runs_once(site: ServerSite) -> None:
    """The guardian renews on the server as it does in a file."""
    await site.crew(lease_s=8.0, heartbeat_s=0.6)
    task = await site.enqueue("hold_the_interpreter", {"seconds": 13.0})
    final = await site.final(task)

    assert (final.status, final.attempt) == (Status.COMPLETED, 1)
    assert len(site.noted("began")) == 1
    await site.judge([task.id])
