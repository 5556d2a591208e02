"""The state of everything on one page."""

import pytest

from ade import Status
from ade.tasks import overview as tasks_overview
from ade.tasks.overview import overview, throughput
from ade.worker.views import WorkersLiveness, view_workers
from tests.domain import Queue, Stores, Worker
from tests.tasks.queue_driver import QueueDriver


async def test_depths_ages_and_dead_letters(queue: QueueDriver, stores: Stores) -> None:
    await queue.enqueue(queue="mail")
    queue.clock.advance(5)
    await queue.enqueue(queue="mail", run_after=queue.clock.now() + 60_000)
    dead = await queue.dead_letter(name="print")
    await stores.queues.configure(Queue(name="night", paused=True, max_depth=7))

    page = await overview(stores)

    queues = {queue.name: queue for queue in page.queues}
    assert queues["mail"].by_status == {Status.PENDING: 2}
    assert (queues["mail"].oldest_ready_ms, queues["mail"].unfinished) == (5_000, 2)
    assert (queues["night"].paused, queues["night"].max_depth, queues["night"].unfinished) == (True, 7, 0)
    assert {depth.name: depth.by_status for depth in page.names}["print"] == {Status.FAILED: 1}
    assert (page.dead_letters, page.total(Status.FAILED)) == (1, 1)

    from ade.tasks.service import discard

    await discard(stores, dead.id, "obsolete")
    assert (await overview(stores)).dead_letters == 0


async def test_an_empty_store_has_an_empty_page(stores: Stores) -> None:
    page = await overview(stores)
    assert (page.queues, page.names, page.workers, page.dead_letters) == ([], [], [], 0)
    assert page.throughput.completed_per_s == 0


async def test_throughput_counts_the_last_minute(queue: QueueDriver, stores: Stores) -> None:
    await queue.enqueue()
    await queue.complete(await queue.claim())
    queue.clock.advance(120)
    for _ in range(6):
        await queue.enqueue()
        await queue.complete(await queue.claim())
    await queue.dead_letter()

    rates = await throughput(stores)
    assert (rates.over_ms, rates.created_per_s, rates.completed_per_s) == (60_000, 0.117, 0.1)
    assert rates.failed_per_s == 0.017


async def test_throughput_of_a_busy_store_is_measured_over_a_shorter_time(
    queue: QueueDriver, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_overview, "_SAMPLE", 10)
    for _ in range(20):
        await queue.enqueue()
        queue.clock.advance(1)

    rates = await throughput(stores)
    assert (rates.over_ms, rates.created_per_s) == (10_000, 1.0)


async def test_alive_means_that_the_consume_loop_goes_round(queue: QueueDriver, stores: Stores) -> None:
    now = queue.clock.now()

    async def register(name: str, **fields: object) -> None:
        known: dict[str, object] = {"progress_at": now}
        worker = Worker(id=name, hostname="h", pid=1, started_at=0, version="0", **(known | fields))  # type: ignore[arg-type] # any field
        await stores.workers.register(worker, [], 30_000)

    await register("silent")
    queue.clock.advance(31)
    now = queue.clock.now()
    await register("draining", draining=True)
    await register("stuck", progress_at=now - 60_000)
    await register("working")

    views = {view.worker.id: view for view in await view_workers(stores)}
    assert {name: view.liveness for name, view in views.items()} == {
        "silent": WorkersLiveness.SILENT,
        "draining": WorkersLiveness.DRAINING,
        "stuck": WorkersLiveness.STUCK,
        "working": WorkersLiveness.WORKING,
    }
    assert views["silent"].silent_ms == 1_000
    assert views["stuck"].stuck_ms == 60_000
