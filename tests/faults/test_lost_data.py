"""What a server keeps is damaged, thrown away or without room: workers say so, wait without haste, and go on."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ade import Status
from ade.errors import StoreCorrupt, StoreFull
from tests.domain import RedisMaintenance
from tests.faults.on_servers import ServerSite, site_on, under_load
from tests.faults.workers import until
from tests.servers.binaries import Binary
from tests.servers.plugin import binary_or_skip
from tests.servers.server import Server
from tests.waiting import eventually

pytestmark = [pytest.mark.faults]

CALM = 120  # calls or log lines in a second, of two workers that have nothing to do and look every 0.2 s
LOOK_S = 1.0
WITHIN_S = 15.0  # seconds, on a busy machine


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(binary_or_skip("valkey")) as started:
        yield started


@pytest.fixture
async def site(server: Server, tmp_path: Path) -> AsyncIterator[ServerSite]:
    async with site_on(server.url, tmp_path) as made:
        yield made


async def haste(site: ServerSite, server: Server) -> float:
    """How many scripts the server runs and lines the logs get in a second, whichever are more."""

    def counts() -> tuple[int, int]:
        lines = sum(len(worker.log().splitlines()) for worker in site.workers)
        known = server.info("commandstats")
        return sum(int(known[name]["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in known), lines

    before, began = counts(), time.monotonic()
    await asyncio.sleep(LOOK_S)  # nothing is waited for: this is what is measured
    after, took_s = counts(), time.monotonic() - began
    return max(late - early for late, early in zip(after, before, strict=True)) / took_s


async def sound(site: ServerSite) -> None:
    """The invariants hold once everything was looked at, as workers do it now and then."""
    assert isinstance(site.stores.maintenance, RedisMaintenance)
    await site.stores.maintenance.reconcile()

    async def look() -> bool:
        return await site.stores.maintenance.check_invariants() == []

    try:
        await eventually(look, 60.0)
    except TimeoutError:
        assert await site.stores.maintenance.check_invariants() == []


async def test_a_full_server_takes_no_new_work_while_running_tasks_end(server_binary: Binary, tmp_path: Path) -> None:
    with Server(server_binary) as server:
        async with site_on(server.url, tmp_path) as site:
            await site.crew(lease_s=30.0)
            go_on = site.folder / "go-on"
            running = [await site.enqueue("slow_when_continued", {"until": str(go_on)}) for _ in range(6)]
            await site.until_noted("began", 6)
            server.command("CONFIG", "SET", "maxmemory", server.info("memory")["used_memory"] // 2)

            with pytest.raises(StoreFull, match="maxmemory"):
                await site.add(site.task())
            assert await haste(site, server) < CALM
            go_on.touch()
            ended = [await site.final(task) for task in running]

            assert [(task.status, task.attempt) for task in ended] == [(Status.COMPLETED, 1)] * 6
            server.command("CONFIG", "SET", "maxmemory", 0)
            await site.judge([task.id for task in running])


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(("ade:queue:leases", "ade:queue:levels"), id="leases-and-levels"),
        pytest.param(("ade:queue:tasks:default:5",), id="stream", marks=pytest.mark.long),
        pytest.param(("ade:events",), id="log", marks=pytest.mark.long),
        pytest.param(("ade:duty", "ade:meta"), id="jobs-and-meta"),
        pytest.param(("ade:workers", "ade:definitions", "ade:tally"), id="workers", marks=pytest.mark.long),
    ],
)
async def test_keys_of_the_wrong_type_are_moved_aside_within_seconds_and_work_goes_on(
    site: ServerSite, server: Server, keys: Sequence[str]
) -> None:
    await site.crew()
    tasks = await site.add(*(site.task() for _ in range(20)))
    await site.all_final([task.id for task in tasks])
    waiting = await site.add(*(site.task(0.2) for _ in range(60)))
    for key in keys:
        server.command("SET", key, "something else")

    await until(lambda: all(is_reported(site, key) for key in keys), "the workers report it", WITHIN_S)
    await site.all_final([task.id for task in waiting])
    await site.all_hear()
    alerts = [event.payload for event in await site.stores.events.newest(5_000) if event.type == "alert"]
    assert {str(each["key"]) for each in alerts if each.get("what") == "key_of_wrong_type"} >= set(keys)
    assert [key for key in keys if key not in await doctor_says(site)] == []
    assert await haste(site, server) < CALM
    await sound(site)


async def test_a_key_that_protects_something_stays_and_everyone_is_told_what_to_do(
    site: ServerSite, server: Server
) -> None:
    """Which queues are paused is lost: none may run before an operator has decided."""
    await site.crew(1)
    server.command("SET", "ade:queues", "something else")

    await until(lambda: is_reported(site, "ade:queues"), "the worker reports it", WITHIN_S)
    said = await doctor_says(site)
    assert "remove the key, then pause queues and set their limits again" in said
    assert "left there" in said
    assert await haste(site, server) < CALM
    server.command("DEL", "ade:queues")

    await site.all_final([task.id for task in await site.add(*(site.task() for _ in range(20)))])
    assert "ade:queues" not in await doctor_says(site)


def is_reported(site: ServerSite, key: str) -> bool:
    return any('"key_of_wrong_type"' in line and f'"key": "{key}"' in line for line in site.warnings())


async def doctor_says(site: ServerSite) -> str:
    """Everything that `ade doctor` prints."""
    environment = {**os.environ, "ADE_STORE__URL": site.url, "ADE_REDIS__ALLOW_VOLATILE": "true"}
    command = [sys.executable, "-m", "ade.cli", "doctor", "--json"]
    ended = await asyncio.to_thread(
        subprocess.run, command, env=environment, cwd=site.folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode in (0, 1), ended.stderr
    return ended.stdout


async def test_a_caller_is_told_which_key_is_spoiled(site: ServerSite, server: Server) -> None:
    server.command("SET", "ade:task:all", "something else")

    with pytest.raises(StoreCorrupt, match="ade:task:all is a string and should be a zset"):
        await site.add(site.task())


@pytest.mark.parametrize(
    "empty",
    [
        pytest.param(Server.flush, id="flushed"),
        pytest.param(Server.restart, id="restarted-without-its-data"),
    ],
)
@pytest.mark.long
async def test_a_server_that_was_emptied_is_noticed_and_new_work_is_done(
    site: ServerSite, server: Server, empty: Callable[[Server], object]
) -> None:
    await site.crew()
    async with under_load(site) as load:
        await asyncio.to_thread(empty, server)
        before = len(load.acknowledged)
        await until(lambda: any("store_lost_its_data" in line for line in site.warnings()), "the loss is told")
        await load.more()
        after = load.acknowledged[before + 10 :]  # a batch of each producer may have been on its way

    await site.all_final(after)
    await site.all_hear()
    assert await haste(site, server) < CALM
    await sound(site)
