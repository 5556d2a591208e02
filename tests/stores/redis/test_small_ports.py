"""What only servers do to effects, output, schedules, blobs, queues and workers: lost answers, partitions, no room."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from ade import Status
from ade.errors import StoreCorrupt, StoreFull
from ade.stores.ports import StatusCount
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.sweeps import claim_job
from ade.stores.redis.workers import FORGET_AFTER_MS, RedisWorkers
from ade.tasks.model import MOST_OUTPUT_LINES, Definition, Queue, Schedule
from tests.conformance.scene import raw
from tests.domain import Event
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.server import Server
from tests.stores.redis.ports import Ports, line, open_ports

NIGHTLY = Schedule(name="nightly", cron="0 3 * * *", task_name="report", next_at=1_000)
LEASE_MS = 30_000


@pytest.fixture
async def forgetful(ports: Ports) -> Ports:
    """On a line that loses the first answer to everything."""
    ports.link.loses_answers = True
    return ports


@pytest.fixture
async def spread(server_binary: Binary, server_pool: Pool) -> AsyncIterator[Ports]:
    """In four partitions on a cluster."""
    async with open_ports(server_pool.cluster(server_binary.kind).url, partitions=4) as opened:
        yield opened


async def test_an_effect_that_was_forgotten_twice_over_leaves_the_next_run_its_entry(ports: Ports) -> None:
    one, two = await ports.start(), await ports.start()
    await ports.effects.begin("pay/1", one.id, str(one.run_id))
    await ports.effects.forget("pay/1")
    await ports.effects.begin("pay/1", two.id, str(two.run_id))

    await ports.link.send_again("effect", 1)

    assert (await ports.effects.begin("pay/1", one.id, str(one.run_id))).run_id == two.run_id


async def test_the_ledger_is_the_same_when_answers_get_lost(forgetful: Ports) -> None:
    effects = forgetful.effects
    one, two = await forgetful.start(), await forgetful.start()
    await effects.begin("pay/1", one.id, str(one.run_id))
    await effects.finish("pay/1", str(one.run_id), raw('{"receipt":7}'))
    assert (await effects.begin("pay/1", two.id, str(two.run_id))).answer == raw('{"receipt":7}')
    await forgetful.remove(one)
    forgetful.clock.advance(10)

    assert await effects.prune_effects(forgetful.clock.now(), 10) == 1
    assert await forgetful.keys("effect*") == []


async def test_effects_are_spread_over_the_partitions_and_pruned_from_all(spread: Ports) -> None:
    running = await spread.start()
    for number in range(12):
        await spread.effects.begin(f"pay/{number}", running.id, str(running.run_id))
        await spread.effects.finish(f"pay/{number}", str(running.run_id), raw("1"))
    await spread.remove(running)
    used = {key.partition(b"}")[0] for key in await spread.keys("effect:*")}
    spread.clock.advance(10)

    assert len(used) > 1
    assert [await spread.effects.prune_effects(spread.clock.now(), 7) for _ in range(3)] == [7, 5, 0]


async def test_lines_that_arrive_twice_are_kept_once(forgetful: Ports) -> None:
    running = await forgetful.start()
    for text in ("one", "two"):
        await forgetful.outputs.append([line(running, text), line(running, f"and {text}")])

    lines = await forgetful.outputs.read_output(running.id, 0, 10)

    assert [(entry.seq, entry.text) for entry in lines] == [(1, "one"), (2, "and one"), (3, "two"), (4, "and two")]


async def test_the_mark_for_cut_output_comes_once_however_often_it_is_sent(forgetful: Ports) -> None:
    running = await forgetful.start()
    await forgetful.outputs.append([line(running, "x")] * (MOST_OUTPUT_LINES + 5))
    await forgetful.outputs.append([line(running, "y")])

    [mark] = await forgetful.outputs.read_output(running.id, MOST_OUTPUT_LINES, 10)

    assert (mark.stream, mark.text) == ("mark", f"[output cut after {MOST_OUTPUT_LINES} lines]")


async def test_lines_of_a_task_that_does_not_exist_leave_nothing_behind(spread: Ports) -> None:
    nobody = structs.replace(spread.task(), run_id="run-a")

    await spread.outputs.append([line(nobody, "hello")])

    assert await spread.outputs.read_output(nobody.id, 0, 10) == []
    assert await spread.keys("task:*") == []


async def test_a_schedule_is_moved_and_removed_by_who_asked_even_if_the_answer_got_lost(forgetful: Ports) -> None:
    schedules = forgetful.schedules
    await schedules.put(NIGHTLY)

    assert await schedules.put(structs.replace(NIGHTLY, next_at=5_000), seen=NIGHTLY)
    assert not await schedules.put(structs.replace(NIGHTLY, next_at=9_000), seen=NIGHTLY)
    assert [schedule.next_at for schedule in await schedules.list_schedules(due_by=5_000)] == [5_000]
    assert await schedules.remove("nightly")
    assert not await schedules.remove("nightly")
    assert await schedules.list_schedules(due_by=9_000) == []


async def test_a_removal_that_arrives_twice_spares_the_schedule_put_there_since(ports: Ports) -> None:
    await ports.schedules.put(NIGHTLY)
    await ports.schedules.remove("nightly")
    await ports.schedules.put(structs.replace(NIGHTLY, cron="5 5 * * *"))

    await ports.link.send_again("put_schedule", -2)

    assert [schedule.cron for schedule in await ports.schedules.list_schedules()] == ["5 5 * * *"]


async def test_blobs_are_spread_and_leave_nothing_behind(spread: Ports) -> None:
    tasks = [spread.task() for _ in range(12)]
    for task in tasks:
        await spread.blobs.put_blob(f"{task.id}.args", b"\xff\0much")
        await spread.blobs.put_blob(f"{task.id}.1.1.result", b"more")
    used = {key.partition(b"}")[0] for key in await spread.keys("blob:*")}
    assert len(used) > 1
    assert await spread.blobs.get_blob(f"{tasks[0].id}.args") == b"\xff\0much"

    await spread.blobs.remove_refs([f"{tasks[0].id}.args"])
    with pytest.raises(StoreCorrupt, match="is missing"):
        await spread.blobs.get_blob(f"{tasks[0].id}.args")
    await spread.blobs.remove_blobs([task.id for task in tasks])

    assert await spread.keys("blob*") == []


async def test_a_blob_put_again_while_it_is_judged_an_orphan_stays(ports: Ports) -> None:
    task_id = ports.task().id
    await ports.blobs.put_blob(f"{task_id}.args", b"first")
    judged = {"blobs": [(task_id, ports.clock.now())]}
    ports.clock.advance(3_601)
    await ports.blobs.put_blob(f"{task_id}.args", b"second")

    assert await ports.link.run("remove_orphan_blobs", 0, judged) == 0
    assert await ports.blobs.get_blob(f"{task_id}.args") == b"second"


async def test_a_blob_that_somebody_changed_is_not_given_out(ports: Ports) -> None:
    ref = f"{ports.task().id}.args"
    await ports.blobs.put_blob(ref, b"content")
    await ports.link.ask(0, ("APPEND", f"{ports.link.names[0].prefix}blob:{ref}", b"!"))

    with pytest.raises(StoreCorrupt, match="digest"):
        await ports.blobs.get_blob(ref)


async def test_the_settings_of_a_queue_reach_every_partition(spread: Ports) -> None:
    await spread.queues.configure(Queue(name="a", paused=True, max_depth=0))

    assert len(await spread.keys("queues")) == spread.link.partitions
    assert await spread.queues.list_queues() == [Queue(name="a", paused=True, max_depth=0)]


async def test_a_queue_configured_twice_by_one_request_is_told_of_once(ports: Ports) -> None:
    paused = Event(type="queue.paused", at=ports.clock.now(), payload={"queue": "a"})
    await ports.queues.configure(Queue(name="a", paused=True), paused)

    await ports.link.send_again("configure_queue")

    [entries] = await ports.link.ask(0, ("XRANGE", f"{ports.link.names[0].prefix}events", "-", "+"))
    assert len(entries) == 1


async def test_who_waits_for_work_hears_of_a_configured_queue_once(server: Server, ports: Ports) -> None:
    with server.client() as client, client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(f"{ports.link.settings.prefix}hints")
        assert listener.get_message(timeout=30) is None  # the subscription itself

        await ports.queues.configure(Queue(name="a"))

        heard = listener.get_message(timeout=60)
        assert heard is not None
        assert heard["data"] == "work"


async def test_a_name_may_contain_what_separates_the_counters(ports: Ports) -> None:
    await ports.tasks.add([ports.task(name="mail:send:now")])

    assert await ports.queues.tallies() == [StatusCount(ports.queue_in(0), "mail:send:now", Status.PENDING, 1)]


async def test_limits_reach_every_partition_and_go_again(spread: Ports) -> None:
    for definition in (Definition(name="send", concurrency=1), Definition(name="send")):
        await spread.workers.register(spread.worker(), [definition], LEASE_MS)
        limited = definition.concurrency is not None

        assert len(await spread.keys("limits")) == (spread.link.partitions if limited else 0)
        assert await spread.workers.definitions() == [definition]


async def test_a_worker_that_does_not_know_where_its_tasks_are_renews_them_all_the_same(spread: Ports) -> None:
    running, done = await spread.start(), await spread.start()
    await spread.succeed(done)
    spread.clock.advance(10)
    stranger = RedisWorkers(spread.link, Partitions(spread.link))
    held = {str(running.run_id): running.id, str(done.run_id): done.id, "run-x": spread.task().id}

    renewal = stranger.renew(spread.worker(), held, lease_ms=LEASE_MS)

    assert renewal.gone == {str(done.run_id): Status.COMPLETED, "run-x": None}
    [renewed] = await spread.tasks.get([running.id])
    assert renewed is not None
    assert renewed.lease_until == spread.clock.steady() + LEASE_MS


async def test_a_worker_that_leaves_is_no_longer_among_the_readers(ports: Ports) -> None:
    await ports.workers.register(ports.worker("w1"), [], LEASE_MS)
    running = await ports.start(worker="w1")
    assert await ports.consumers() == {"w1"}
    await ports.succeed(running)

    await ports.workers.deregister("w1")

    assert await ports.consumers() == set()
    assert await ports.workers.list_workers() == []


async def test_a_reader_with_something_pending_stays_among_the_readers(ports: Ports) -> None:
    await ports.workers.register(ports.worker("w1"), [], LEASE_MS)
    await ports.start(worker="w1")

    await ports.workers.deregister("w1")

    assert await ports.consumers() == {"w1"}
    assert await ports.workers.list_workers() == []


async def test_the_silent_are_named_to_who_forgot_them_even_if_the_answer_got_lost(forgetful: Ports) -> None:
    forgetful.workers.renew(forgetful.worker("w1"), {}, lease_ms=LEASE_MS)
    running = await forgetful.start(worker="w2")
    forgetful.workers.renew(forgetful.worker("w2"), {}, lease_ms=LEASE_MS)
    forgetful.clock.advance((FORGET_AFTER_MS + LEASE_MS) / 1000 + 1)

    assert await forgetful.workers.forget_silent() == ["w1"]
    await forgetful.succeed(running)
    assert await forgetful.workers.forget_silent() == ["w2"]
    assert await forgetful.workers.forget_silent() == []
    assert await forgetful.consumers() == set()


async def test_without_a_given_clock_the_servers_time_counts(server: Server, ports: Ports) -> None:
    ports.link.clock = ports.link.server_clock
    workers = RedisWorkers(ports.link, ports.places)
    seconds, _ = server.command("TIME")

    await workers.register(ports.worker(), [], LEASE_MS)
    [known] = await workers.list_workers()

    assert abs(known.heartbeat_until - LEASE_MS - seconds * 1000) < 10_000
    assert await claim_job(ports.link, "sweep", "p1", 60_000)
    assert not await claim_job(ports.link, "sweep", "p2", 60_000)


async def test_on_a_full_server_running_work_still_ends_and_people_can_look(server: Server, ports: Ports) -> None:
    running = await ports.start()
    await ports.effects.begin("pay/1", running.id, str(running.run_id))
    server.command("CONFIG", "SET", "maxmemory", 1)
    try:
        await ports.effects.finish("pay/1", str(running.run_id), raw("1"))
        assert ports.workers.renew(ports.worker(), {str(running.run_id): running.id}, lease_ms=LEASE_MS).gone == {}
        assert await ports.effects.is_live(running.id, str(running.run_id))
        assert await claim_job(ports.link, "prune", "p1", 10_000)
        await ports.queues.configure(Queue(name="a", paused=True))
        assert [tally.count for tally in await ports.queues.tallies()] == [1]
        assert await ports.outputs.read_output(running.id, 0, 10) == []
        for refused in (ports.outputs.append([line(running, "x")]), ports.blobs.put_blob(f"{running.id}.x", b"x")):
            with pytest.raises(StoreFull):
                await refused
    finally:
        server.command("CONFIG", "SET", "maxmemory", 0)
