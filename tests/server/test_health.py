"""Whether a server can do its work, and how everything is."""

import asyncio
from pathlib import Path
from typing import Any, cast

import apsw
import pytest
from msgspec.structs import replace

from ade import VERSION
from ade.errors import StoreUnavailable
from ade.stores.ports import Stores, WorkerStore
from ade.worker.views import WorkersLiveness
from tests.domain import FindingsVerdict, Queue, Worker, events_after, health, open_stores, readiness
from tests.tasks.queue_driver import QueueDriver
from tests.worker.harness import Replaced

PATIENCE_S = 90.0


async def register(queue: QueueDriver, name: str, *, stood_still_ms: int = 0) -> None:
    progress_at = queue.clock.now() - stood_still_ms
    worker = Worker(id=name, hostname="h", pid=1, started_at=0, version=VERSION, progress_at=progress_at)
    await queue.stores.workers.register(worker, [], 30_000)


def with_workers(stores: Stores, list_workers: object) -> Stores:
    return replace(stores, workers=cast(WorkerStore, Replaced(stores.workers, {"list_workers": list_workers})))


async def test_a_store_that_answers_is_ready(stores: Stores) -> None:
    found = await readiness(stores, timeout_s=PATIENCE_S)
    assert found.is_ready
    assert set(found.checks.values()) == {"ok"}


async def test_before_the_store_is_open_nothing_is_ready() -> None:
    found = await readiness(None, timeout_s=PATIENCE_S)
    assert not found.is_ready
    assert found.checks == {"store": "not open yet", "migrations": "not done yet"}


async def test_a_store_that_hangs_is_not_waited_for(stores: Stores) -> None:
    async def hang() -> Any:
        await asyncio.Event().wait()

    found = await readiness(with_workers(stores, hang), timeout_s=0.01)
    assert not found.is_ready
    assert found.checks["store"] == "did not answer within 0.01 s"


async def test_a_store_that_is_away_is_told_without_its_place(stores: Stores) -> None:
    async def refuse() -> Any:
        raise StoreUnavailable("no route to db.internal:6379")

    found = await readiness(with_workers(stores, refuse), timeout_s=PATIENCE_S)
    assert not found.is_ready
    assert found.checks["store"] == "cannot be used (store_unavailable)"


@pytest.mark.parametrize("end", ["", "-wal"])
async def test_a_server_whose_files_were_removed_is_not_ready(tmp_path: Path, end: str) -> None:
    opened = await open_stores(f"sqlite:///{tmp_path / 'ade.db'}")
    assert (await readiness(opened, timeout_s=PATIENCE_S)).is_ready
    (tmp_path / f"ade.db{end}").unlink()

    found = await readiness(opened, timeout_s=PATIENCE_S)

    assert not found.is_ready
    assert found.checks["store"] == "cannot be used (store_replaced)"
    await opened.close()


async def test_a_server_that_can_read_and_not_write_is_not_ready(tmp_path: Path) -> None:
    opened = await open_stores(f"sqlite:///{tmp_path / 'ade.db'}")
    newer = apsw.Connection(str(tmp_path / "ade.db"))
    newer.pragma("user_version", 999)
    newer.close()

    found = await readiness(opened, timeout_s=PATIENCE_S)

    assert found.checks["store"] == "cannot be used (store_too_new)"
    assert found.checks["migrations"] == "store_too_new"
    await opened.close()


async def test_only_its_own_loops_make_a_server_unready(queue: QueueDriver, stores: Stores) -> None:
    await register(queue, "stuck", stood_still_ms=60_000)
    assert (await readiness(stores, timeout_s=PATIENCE_S)).is_ready
    assert (await readiness(stores, timeout_s=PATIENCE_S, is_own=lambda worker: worker.id == "other")).is_ready
    assert not (await readiness(stores, timeout_s=PATIENCE_S, is_own=lambda worker: worker.id == "stuck")).is_ready


async def test_all_is_well_with_a_worker_that_works(queue: QueueDriver, stores: Stores) -> None:
    await register(queue, "w1")
    await stores.sweeps.take_duty("settle", "w1", 1_500)
    report = await health(stores, events_after, timeout_s=PATIENCE_S)
    assert (report.verdict, report.version, report.overdue_ms) == (FindingsVerdict.OK, VERSION, {"settle": 0})
    assert [(loop.worker, loop.liveness) for loop in report.loops] == [("w1", WorkersLiveness.WORKING)]
    assert report.store
    assert "quick_check" not in report.store, "that reads the whole file"


async def test_what_deserves_attention_is_told(queue: QueueDriver, stores: Stores) -> None:
    await stores.sweeps.take_duty("settle", "w1", 1_500)
    await stores.queues.configure(Queue(name="night", paused=True))
    await queue.enqueue(queue="night")
    await queue.enqueue()
    queue.clock.advance(120)
    await register(queue, "stuck", stood_still_ms=60_000)

    report = await health(stores, events_after, timeout_s=PATIENCE_S)
    assert report.verdict is FindingsVerdict.PROBLEM
    said = [finding for finding in report.findings if finding.check != "store"]  # that of a test has its own troubles
    told = [(finding.check, finding.verdict) for finding in said if finding.verdict is not FindingsVerdict.OK]
    assert told == [
        ("workers", FindingsVerdict.PROBLEM),
        ("workers", FindingsVerdict.WARNING),
        ("queues", FindingsVerdict.WARNING),
        ("queues", FindingsVerdict.WARNING),
        ("alerts", FindingsVerdict.WARNING),
        ("duties", FindingsVerdict.WARNING),
    ]
    assert 118_000 <= report.overdue_ms["settle"] <= 119_000


async def test_a_report_on_a_store_that_hangs_says_so(stores: Stores) -> None:
    async def hang() -> Any:
        await asyncio.Event().wait()

    report = await health(with_workers(stores, hang), events_after, timeout_s=0.05)
    assert report.verdict is FindingsVerdict.PROBLEM
