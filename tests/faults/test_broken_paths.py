"""The way to the server loses answers, or everything, without closing a connection."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ade.settings import Settings
from ade.stores.redis.scripts import script
from tests.domain import Stores, open_stores
from tests.faults.on_servers import VOLATILE, ServerSite, site_on, under_load
from tests.faults.workers import until
from tests.servers.plugin import binary_or_skip
from tests.servers.proxy import Proxy
from tests.servers.server import Server
from tests.waiting import watching

pytestmark = [pytest.mark.faults]

PROMISED_S = 10.0
WORK_GOES_ON_S = 25.0  # on whatever machine


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(binary_or_skip("valkey")) as started:
        yield started


@pytest.fixture
def path(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def site(server: Server, path: Proxy, tmp_path: Path) -> AsyncIterator[ServerSite]:
    """Workers go by the path, the test itself does not."""
    async with site_on(server.url, tmp_path) as made:
        made.url = path.url(server.url)
        yield made


@pytest.fixture
async def stores_on_path(site: ServerSite) -> AsyncIterator[Stores]:
    stores = await open_stores(site.url, Settings(redis=VOLATILE))
    yield stores
    await stores.close()


@pytest.mark.parametrize("name", ["add_fast_path", "claim", "commit", "renew"])
async def test_an_answer_that_is_lost_after_the_work_was_done_changes_nothing(
    site: ServerSite, path: Proxy, stores_on_path: Stores, name: str
) -> None:
    await site.crew(lease_s=30.0)  # nothing runs twice because the machine was slow
    async with under_load(site, stores=stores_on_path) as load:
        for count in range(1, 13):
            path.drop_replies(1, containing=script(name).sha)
            await asyncio.to_thread(path.wait_lost, count)
    await site.judge(load.acknowledged)

    assert load.troubles == []
    runs = site.runs()
    assert {task_id: ran for task_id, ran in runs.items() if len(ran) > 1} == {}
    stories = await site.stories()
    assert set(stories) >= set(load.acknowledged)
    assert set(stories) == set(runs)  # nothing was made twice


async def test_many_lost_answers_in_a_row_are_asked_for_again(
    site: ServerSite, path: Proxy, stores_on_path: Stores
) -> None:
    await site.crew(lease_s=30.0)
    async with under_load(site, stores=stores_on_path) as load:
        path.drop_replies(60, containing="EVALSHA")
        await asyncio.to_thread(path.wait_lost, 60)
        await load.more()
    await site.judge(load.acknowledged)

    assert [ran for ran in site.runs().values() if len(ran) > 1] == []


@pytest.mark.parametrize("forget", [False, True], ids=["heals", "old-connections-stay-deaf"])
@pytest.mark.long
async def test_work_goes_on_soon_after_a_black_hole(
    site: ServerSite, path: Proxy, stores_on_path: Stores, forget: bool
) -> None:
    workers = await site.crew()
    async with under_load(site, stores=stores_on_path) as load:
        path.blackhole()
        await until(lambda: bool(load.troubles), "a producer is told")
        assert all("lease.not_renewed" in worker.log() for worker in workers)

        path.heal(forget=forget)

        healed = time.monotonic()
        async with watching() as watch:
            [task] = await site.add(site.task())
            await site.final(task, WORK_GOES_ON_S)
            await load.more(within_s=WORK_GOES_ON_S)
            assert time.monotonic() - healed - watch.lost_s < PROMISED_S
        await site.all_hear(WORK_GOES_ON_S)
    await site.judge([*load.acknowledged, task.id])
