"""What is lost around the records comes back; what is lost with them is told, and nothing is made up."""

import asyncio
import logging

import pytest

from ade import Task
from ade.errors import StaleLease, StoreCorrupt
from ade.stores.redis.repair import health_check
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import Definition, TaskQuery
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.server import Server
from tests.stores.redis.full_partitions import OPTIONS, Village, village
from tests.stores.redis.opened import upkeep_of

# Everything that is made from the records, by the pattern of its keys.
MADE_ANEW = [
    "queue:tasks:*",
    "queue:back",
    "queue:line:*",
    "queue:lines",
    "queue:delayed",
    "queue:deadlines",
    "queue:leases",
    "queue:levels",
    "queue:depth",
    "queue:running",
    "queue:key:*",
    "queue:parked:*",
    "queue:parking:*",
    "queue:parkings",
    "queue:broken",
    "queue:dlq",
    "tally",
    "task:all",
    "task:finished",
    "task:results",
    "task:index:state:*",
    "task:index:team:*",
    "task:index:ticket:*",
    "task:index:author:*",
    "task:index:tag:*",
    "task:index:resource:*",
    "task:children:*",
    "task:key:*",
    "task:needs:*",
    "task:waiting:*",
    "schedules:due",
    "workers:heartbeat",
    "effects",
    "lock:held:*",
    "lock:line:*",
    "lock:owner:*",
    "lock:kind:*",
    "lock:leases",
    "lock:marks",
]
LOST_FOR_GOOD = ["events", "claim:*", "said:*", "meta", "rates", "gone", "workers", "definitions", "lock:request:*"]


async def _comes_to_its_end(settled: Village) -> None:
    """No task is lost, run twice or stuck, and everything fits."""
    assert await settled.maintenance.check_invariants() == []
    await settled.run_out()
    assert await settled.unfinished() == []
    assert await settled.maintenance.check_invariants() == []


@pytest.mark.parametrize("pattern", MADE_ANEW)
async def test_what_was_made_from_records_is_made_anew(settled: Village, pattern: str) -> None:
    lost = settled.lose(pattern)
    assert lost, "there is something to lose"

    report = await settled.maintenance.reconcile()

    assert report.mended
    assert report.gone == []
    assert set(settled.keys_like(pattern)) >= set(lost) or pattern in (
        "queue:tasks:*",
        "queue:parked:*",
        "queue:parking:*",
        "queue:parkings",
    )
    await _comes_to_its_end(settled)


@pytest.mark.parametrize("pattern", LOST_FOR_GOOD)
async def test_work_goes_on_without_what_cannot_come_back(settled: Village, pattern: str) -> None:
    settled.lose(pattern)

    assert (await settled.maintenance.reconcile()).gone == []

    await _comes_to_its_end(settled)


async def test_everything_but_the_records_may_go(settled: Village) -> None:
    records = {f"ade:task:{task.id}" for task in settled.tasks} | {"ade:meta", "ade:definitions", "ade:events"}
    for key in settled.keys_like():
        if key not in records:
            settled.command("DEL", key)

    report = await settled.maintenance.reconcile()

    assert report.mended
    await _comes_to_its_end(settled)


async def test_a_second_look_finds_nothing_left_to_mend(settled: Village) -> None:
    settled.lose("queue:*")
    settled.lose("task:needs:*")
    await settled.maintenance.reconcile()

    again = await settled.maintenance.reconcile()

    assert again.sentences == []


async def test_lost_groups_are_made_anew_and_runs_stay_with_their_workers(settled: Village) -> None:
    for stream in [*settled.keys_like("queue:tasks:*"), "ade:queue:back"]:
        settled.command("XGROUP", "DESTROY", stream, "ade-workers")

    report = await settled.maintenance.reconcile()

    assert report.mended["every_run_has_its_delivery"] == len(settled.running)
    await _comes_to_its_end(settled)


async def test_claims_after_a_lost_group_take_nothing_twice(settled: Village) -> None:
    for stream in [*settled.keys_like("queue:tasks:*"), "ade:queue:back"]:
        settled.command("XGROUP", "DESTROY", stream, "ade-workers")
    running = {task.id for task in settled.running}

    taken = await settled.scene.claim(20, worker="w4")

    assert not running & {task.id for task in taken}
    settled.running += taken
    assert await health_check(settled.maintenance._link, settled.maintenance._places) != []
    await settled.maintenance.checkpoint()
    await _comes_to_its_end(settled)


async def test_order_is_kept_when_a_stream_comes_back_as_a_line(settled: Village) -> None:
    scene = settled.scene
    tasks = [await scene.add("report", queue="late", priority=7) for _ in range(5)]
    settled.command("DEL", "ade:queue:tasks:late:7")
    await settled.maintenance.reconcile()
    tasks.append(await scene.add("report", queue="late", priority=7))

    claimed = await scene.claim(10, queues=("late",))

    assert [task.id for task in claimed] == [task.id for task in tasks]


async def test_limits_come_back_from_what_workers_registered(settled: Village) -> None:
    settled.lose("limits")

    await settled.maintenance.reconcile()

    assert settled.keys_like("limits") == ["ade:limits"]
    assert await settled.scene.claim(names=["build"]) == []
    await _comes_to_its_end(settled)


async def test_a_key_of_the_wrong_type_is_moved_aside(settled: Village) -> None:
    settled.command("DEL", "ade:queue:leases")
    settled.command("SET", "ade:queue:leases", "somebody else's")

    report = await settled.maintenance.reconcile()

    assert report.mended["one_type_for_each_key"] == 1
    [aside] = settled.keys_like("misplaced:*")
    assert settled.command("GET", aside) == "somebody else's"
    await settled.maintenance.reconcile()
    await _comes_to_its_end(settled)


@pytest.mark.parametrize("is_plain", [True, False])
async def test_a_task_whose_index_has_the_wrong_type_is_not_stored_by_half(settled: Village, is_plain: bool) -> None:
    settled.command("SET", "ade:task:index:tag:spoiled", "another program's")
    before = settled.command("DEBUG", "DIGEST-VALUE", *settled.keys_like())

    with pytest.raises(StoreCorrupt, match="tag:spoiled is a string and should be a zset"):
        await settled.scene.add(tags=("spoiled",), idempotency_key=None if is_plain else "only once")

    assert settled.command("DEBUG", "DIGEST-VALUE", *settled.keys_like()) == before


async def test_a_lost_record_is_told_once_and_never_made_up(settled: Village, caplog: pytest.LogCaptureFixture) -> None:
    lost = settled.tasks.pop(next(n for n, task in enumerate(settled.tasks) if task.priority == 3))
    settled.command("DEL", f"ade:task:{lost.id}")

    with caplog.at_level(logging.ERROR, "ade.store"):
        report = await settled.maintenance.reconcile()
        again = await settled.maintenance.reconcile()

    assert (report.gone, report.gone_count, again.gone) == ([lost.id], 1, [])
    assert [record.__dict__["event"] for record in caplog.records] == ["tasks_lost"]
    alerts = [event for event in await settled.scene.stores.events.read(0, 10_000) if event.type == "alert"]
    assert [event.task_id for event in alerts] == [lost.id]
    assert await settled.scene.stores.tasks.get([lost.id]) == [None]
    await _comes_to_its_end(settled)


async def test_a_lost_record_is_known_from_the_log_alone(settled: Village) -> None:
    lost = await settled.scene.add("report", queue="elsewhere", run_after=settled.scene.clock.now() + 10**9)
    settled.command("DEL", f"ade:task:{lost.id}")
    settled.command("ZREM", "ade:queue:delayed", lost.id)
    settled.command("ZREM", "ade:task:all", lost.id)

    report = await settled.maintenance.reconcile()

    assert report.gone == [lost.id]
    await _comes_to_its_end(settled)


async def test_who_waits_for_a_lost_task_hears_that_it_waits_in_vain(settled: Village) -> None:
    scene = settled.scene
    needed = await scene.add(run_after=scene.clock.now() + 10**9)
    strict = await scene.add(depends_on=(needed.id,))
    tolerant = await scene.add(depends_on=(needed.id,), after_failure="run")
    settled.command("DEL", f"ade:task:{needed.id}")

    await settled.maintenance.reconcile()

    settled.tasks.append(tolerant)
    await _comes_to_its_end(settled)
    assert await scene.status(strict.id) == "cancelled"


async def test_pruned_tasks_are_not_called_lost(settled: Village) -> None:
    await settled.run_out()
    ids = [task.id for task in settled.tasks]
    while await settled.scene.stores.sweeps.prune(ids):
        pass

    report = await settled.maintenance.reconcile()

    assert (report.mended, report.gone) == ({}, [])


async def test_symptoms_are_seen_at_a_glance(settled: Village) -> None:
    maintenance = settled.maintenance
    assert await health_check(maintenance._link, maintenance._places) == []

    for key in ("queue:leases", "task:all", "queue:depth", "queue:tasks:default:8"):
        settled.lose(key)

    assert len(await health_check(maintenance._link, maintenance._places)) == 4
    await maintenance.checkpoint()
    await _comes_to_its_end(settled)


async def test_three_sweepers_mend_at_once(settled: Village, server: Server) -> None:
    clock = settled.scene.clock
    async with upkeep_of(server, OPTIONS, clock) as second, upkeep_of(server, OPTIONS, clock) as third:
        for pattern in ("queue:*", "tally", "task:all", "task:needs:*"):
            settled.lose(pattern)

        await asyncio.gather(*(each.reconcile() for each in (settled.maintenance, second, third)))

    assert (await settled.maintenance.reconcile()).gone == []
    await _comes_to_its_end(settled)


async def test_mending_during_a_running_load_harms_nothing(settled: Village) -> None:
    scene, stop = settled.scene, asyncio.Event()
    mended: dict[str, int] = {}

    async def produce() -> None:
        for number in range(60):
            settled.tasks += await scene.add_many(10, "report", priority=number % 10, queue=f"q{number % 3}")
        stop.set()

    async def work(worker: str) -> None:
        while not stop.is_set():
            for task in await scene.claim(7, worker=worker, names=["report"]):
                await (scene.release(task) if task.id[-1] == "0" and task.attempt == 1 else scene.succeed(task))

    async def mend() -> None:
        while not stop.is_set():
            settled.lose("tally")
            settled.lose("queue:tasks:q1:*")
            mended.update((await settled.maintenance.reconcile()).mended)

    await asyncio.gather(produce(), work("a"), work("b"), mend())
    await settled.maintenance.reconcile()

    assert mended["counters_match_records"]
    await _comes_to_its_end(settled)


async def test_a_busy_store_raises_no_false_alarm(settled: Village) -> None:
    scene, stop = settled.scene, asyncio.Event()
    found: list[str] = []

    async def live() -> None:
        for number in range(80):
            settled.tasks += await scene.add_many(10, "report", priority=number % 10)
            for task in await scene.claim(8, names=["report"], worker="a"):
                await (scene.fail(task) if task.id[-1] == "0" else scene.succeed(task))
        stop.set()

    async def look() -> None:
        while not stop.is_set():
            found.extend(await settled.maintenance.check_invariants())
            found.extend(await health_check(settled.maintenance._link, settled.maintenance._places))

    await asyncio.gather(live(), look(), look())

    assert found == []


async def test_an_emptied_server_is_reported_loudly_once_and_work_goes_on(
    settled: Village, caplog: pytest.LogCaptureFixture
) -> None:
    scene, maintenance = settled.scene, settled.maintenance
    settled.command("FLUSHALL")

    with caplog.at_level(logging.ERROR, "ade.store"):
        for _ in range(3):
            await maintenance.checkpoint()
    with pytest.raises(StaleLease, match="no longer exists"):
        await scene.succeed(settled.running[0])

    assert [record.__dict__["event"] for record in caplog.records] == ["store_lost_its_data"]
    [alert] = await scene.stores.events.read(0, 100)
    assert (alert.type, alert.payload["what"], alert.payload["tasks_left"]) == ("alert", "data_lost", 0)
    settled.tasks, settled.running = [await scene.add()], []
    await _comes_to_its_end(settled)


async def test_a_worker_registers_again_when_its_definitions_are_lost(settled: Village) -> None:
    scene, workers = settled.scene, settled.scene.stores.workers
    before = await workers.definitions()
    settled.command("FLUSHALL")

    assert scene.renew(settled.running[0]) == {settled.running[0].id: None}

    assert await workers.definitions() == before == [Definition(name="build", concurrency_per_key=1)]
    await scene.add_many(2, "build", concurrency_key="k")
    assert len(await scene.claim(2)) == 1, "limits hold again"


async def test_remedies_are_called_after_a_loss(settled: Village) -> None:
    called: list[str] = []

    async def remedy() -> None:
        called.append("now")

    settled.maintenance.epochs.when_lost(remedy)
    settled.command("FLUSHALL")
    await settled.maintenance.epochs.check()
    await settled.maintenance.epochs.check()

    assert called == ["now"]


async def test_every_process_notices_but_the_log_is_told_once(server: Server) -> None:
    clock = TestClock()
    async with upkeep_of(server, OPTIONS, clock) as first, upkeep_of(server, OPTIONS, clock) as second:
        server.flush()

        assert (await first.epochs.check(), await second.epochs.check()) == ([0], [0])
        assert (await first.epochs.check(), await second.epochs.check()) == ([], [])
    assert server.command("XLEN", "ade:events") == 1


async def test_a_loss_is_told_even_if_somebody_new_came_upon_the_empty_server_first(server: Server) -> None:
    clock = TestClock()
    async with upkeep_of(server, OPTIONS, clock) as first, upkeep_of(server, OPTIONS, clock) as second:
        server.flush()
        async with upkeep_of(server, OPTIONS, clock) as newcomer:
            assert await newcomer.epochs.check() == []
        assert server.command("XLEN", "ade:events") == 0

        assert (await first.epochs.check(), await second.epochs.check()) == ([0], [0])
    assert server.command("XLEN", "ade:events") == 1


async def test_edges_between_partitions_are_mended(server_binary: Binary, server_pool: Pool) -> None:
    async with village(server_pool.cluster(server_binary.kind)) as built:
        scene = built.scene
        needed, waiting = await _far_apart(scene, built)
        link, places = built.maintenance._link, built.maintenance._places
        here, there = places.of_queue(waiting.queue), places.of_queue(needed.queue)
        await link.ask(here, ("DEL", f"{link.names[here].prefix}task:needs:{waiting.id}"))
        await link.ask(there, ("DEL", f"{link.names[there].prefix}task:waiting:{needed.id}"))

        await built.maintenance.reconcile()
        scene.clock.advance(10)
        await scene.stores.sweeps.due(10)  # asks in the other partition how things stand

        assert await built.maintenance.check_invariants() == []
        built.tasks += [needed, waiting]
        await built.run_out()
        assert await built.unfinished() == []


async def _far_apart(scene: Scene, built: Village) -> tuple[Task, Task]:
    """A task that waits for one in another partition."""
    of_queue = built.maintenance._places.of_queue
    first, second = "q0", next(f"q{n}" for n in range(100) if of_queue(f"q{n}") != of_queue("q0"))
    needed = await scene.add(queue=first, priority=9)
    return needed, await scene.add(queue=second, depends_on=(needed.id,))


async def test_tasks_of_an_earlier_version_are_found_by_label_before_and_after_a_repair(
    settled: Village,
) -> None:
    settled.lose("task:index:author:*")
    settled.lose("task:index:tag:*")
    settled.lose("task:index:resource:*")
    settled.command("HDEL", "ade:meta", "labeled")
    queries = [TaskQuery(author_id="ann"), TaskQuery(tag="urgent"), TaskQuery(resource="db:main")]
    before = [[task.id for task in (await settled.scene.stores.tasks.find(query)).tasks] for query in queries]

    assert (await settled.maintenance.reconcile()).mended

    assert settled.keys_like("task:index:author:*")
    after = [[task.id for task in (await settled.scene.stores.tasks.find(query)).tasks] for query in queries]
    assert before == after
    assert [len(found) for found in after] == [1, 1, 1]
