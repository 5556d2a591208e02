"""Several sweepers at once: whatever they decide is decided once."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from ade import Status
from ade.failures import FailureKind
from ade.settings import Settings
from tests.domain import ClaimRequest, Stores, open_stores, settle_due
from tests.faults.on_servers import VOLATILE, site_on
from tests.faults.programs import stage
from tests.servers.plugin import binary_or_skip
from tests.servers.server import Server

pytestmark = [pytest.mark.faults]

TASKS = 300


async def keep_sweeping(stores: Stores) -> None:
    while True:
        await settle_due(stores)
        await asyncio.sleep(0)


async def test_three_sweepers_bury_each_lost_task_once(tmp_path: Path) -> None:
    """Three processes, and three more that do not even ask whose turn it is."""
    with Server(binary_or_skip("valkey")) as server, stage(tmp_path) as programs:
        async with site_on(server.url, tmp_path) as site:
            tasks = await site.add(*(structs.replace(site.task(), max_attempts=1) for _ in range(TASKS)))
            request = ClaimRequest(
                worker_id="gone",
                run_ids=tuple(f"run-{number}" for number in range(TASKS)),
                names=frozenset({"traced"}),
                lease_ms=4000,
            )
            assert len(await site.stores.tasks.claim(request)) == TASKS
            sweepers = [
                programs.start(
                    f"sweeper-{number}",
                    "ade.cli",
                    "sweep",
                    ADE_STORE__URL=server.url,
                    ADE_REDIS__ALLOW_VOLATILE="true",
                    ADE_SWEEP__INTERVAL_S="0.05",
                    ADE_EVENTS__AUDIT_URL=f"sqlite:///{tmp_path / 'audit.db'}",
                )
                for number in range(3)
            ]
            for sweeper in sweepers:
                await sweeper.until_it_says("Sweeping")
            others = [await open_stores(server.url, Settings(redis=VOLATILE)) for _ in range(3)]
            sweeping = [asyncio.create_task(keep_sweeping(stores)) for stores in others]
            ended = await site.all_final([task.id for task in tasks])
            for each in sweeping:
                each.cancel()
            await asyncio.gather(*sweeping, return_exceptions=True)
            for stores in others:
                await stores.close()

            assert {(task.status, task.error and task.error.kind) for task in ended} == {
                (Status.FAILED, FailureKind.WORKER_DIED)
            }
            await site.judge_events()
