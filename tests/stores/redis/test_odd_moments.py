"""What comes at an odd moment: a clock put back, a lock held too long, news twice, memory of what has moved or gone."""

import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ade import Status, Task
from ade.errors import StoreUnsupported, UnknownDependency
from ade.events.model import ALERT, Event
from ade.failures import FailureKind, TaskError
from ade.stores.redis.blobs import RedisBlobs
from ade.stores.redis.claims import LimitUsage
from ade.stores.redis.codec import packed_event
from ade.stores.redis.event_log import RedisEvents
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.sweeps import RedisSweeps, claim_job
from ade.tasks.decisions import cancel, edit, replay, settle
from ade.testing import TestClock
from tests.clocks import set_back
from tests.conformance.scene import Scene, raw
from tests.domain import (
    AfterFailure,
    ClaimRequest,
    Definition,
    Failed,
    RedisSettings,
    RedisTasks,
    Succeeded,
    open_redis,
)
from tests.servers.plugin import binary_or_skip
from tests.servers.pool import Pool
from tests.servers.server import Options, Server, User
from tests.stores.redis.ports import Ports, open_ports

LEASE_MS = 30_000
HOUR_S = 3600


@pytest.fixture
def server(server_pool: Pool) -> Server:
    return server_pool.standalone("valkey")


@pytest.fixture
async def spread(server_pool: Pool) -> AsyncIterator[Ports]:
    """In four partitions on a cluster."""
    async with open_ports(server_pool.cluster("valkey").url, partitions=4) as opened:
        yield opened


async def claim(ports: Ports, count: int = 1) -> list[Task]:
    run_ids = [os.urandom(16).hex() for _ in range(count)]
    return await ports.tasks.claim(ClaimRequest(worker_id="w1", run_ids=run_ids, names=frozenset({"send"})))


def sweeps_of(ports: Ports) -> RedisSweeps:
    return RedisSweeps(ports.link, ports.places, RedisBlobs(ports.link))


# the server's clock is put back


async def test_a_duty_goes_on_although_its_performer_died_before_the_clock_went_back(ports: Ports) -> None:
    assert await claim_job(ports.link, "settle", "p1", 10_000)
    set_back(ports.clock, HOUR_S)

    assert await claim_job(ports.link, "settle", "p2", 10_000)
    assert not await claim_job(ports.link, "settle", "p1", 10_000)


async def test_a_lease_from_before_the_clock_went_back_ends_when_it_would_have(ports: Ports) -> None:
    sweeps = sweeps_of(ports)
    lost = await ports.start()
    await sweeps.due(10)
    set_back(ports.clock, HOUR_S)
    held = await ports.start()
    assert (await sweeps.due(10)).expired == []

    ports.clock.advance(LEASE_MS / 1000 - 1)
    assert ports.workers.renew(ports.worker(), {str(held.run_id): held.id}, lease_ms=LEASE_MS).gone == {}
    ports.clock.advance(2)

    assert [task.id for task in (await sweeps.due(10)).expired] == [lost.id]


async def test_a_lease_given_right_after_the_clock_went_back_is_whole(ports: Ports) -> None:
    sweeps = sweeps_of(ports)
    await sweeps.due(10)
    set_back(ports.clock, LEASE_MS / 1000 - 2)
    await ports.start()

    await sweeps.due(10)
    ports.clock.advance(LEASE_MS / 1000 - 1)

    assert (await sweeps.due(10)).expired == []
    ports.clock.advance(2)
    assert len((await sweeps.due(10)).expired) == 1


async def test_a_lease_renewed_right_after_the_clock_went_back_is_whole(ports: Ports) -> None:
    sweeps = sweeps_of(ports)
    held = await ports.start()
    await sweeps.due(10)
    set_back(ports.clock, LEASE_MS / 1000 - 2)
    ports.workers.renew(ports.worker(), {str(held.run_id): held.id}, lease_ms=LEASE_MS)

    await sweeps.due(10)
    ports.clock.advance(LEASE_MS / 1000 - 1)

    assert (await sweeps.due(10)).expired == []
    ports.clock.advance(2)
    assert len((await sweeps.due(10)).expired) == 1


async def test_a_rate_used_up_before_the_clock_went_back_is_free_after_its_period(ports: Ports, spread: Ports) -> None:
    assert await _claimed_of_a_rate_used_up(ports) == [2, 0, 2]
    assert await _claimed_of_a_rate_used_up(spread) == [2, 0, 2]


async def _claimed_of_a_rate_used_up(opened: Ports) -> list[int]:
    """How many may run at first, right after the clock went back an hour, and a period later."""
    limit = Definition(name="send", rate_count=2, rate_period_ms=60_000)
    await opened.workers.register(opened.worker(), [limit], LEASE_MS)
    queues = [opened.queue_in(each) for each in range(opened.link.partitions)]
    await opened.tasks.add([opened.task(queue=queue) for queue in queues * 4])
    first = len(await claim(opened, 4))
    set_back(opened.clock, HOUR_S)
    early = len(await claim(opened, 4))
    opened.clock.advance(61)
    return [first, early, len(await claim(opened, 4))]


async def test_a_new_life_after_the_clock_went_back_is_told_behind_the_old_log(server: Server, ports: Ports) -> None:
    events = RedisEvents(ports.link, ports.places)
    await ports.link.ask(0, ("XADD", "ade:events", f"{9 * 10**15}-0", "events", b"\x90"))  # of a clock that ran ahead
    server.command("DEL", "ade:meta")
    alert = packed_event(Event(type=ALERT, at=1, payload={"what": "data_lost"}))

    await ports.link.run("dataset_generation", 0, {"fresh": "ab", "alert": alert})

    assert [event.type for event in await events.read(0, 10)] == [ALERT]
    assert await events.last_seq() > 9 * 10**15


async def test_a_new_life_gives_no_number_of_a_claimed_batch_again(server: Server, ports: Ports) -> None:
    events = RedisEvents(ports.link, ports.places)
    ahead = 9 * 10**15
    server.command("HSET", "ade:meta", "tick", ahead)
    await ports.tasks.add([ports.task() for _ in range(20)])
    await claim(ports, 20)
    newest = await events.last_seq()
    server.command("DEL", "ade:meta")

    await ports.link.run("dataset_generation", 0, {"fresh": "ab", "alert": False})
    await ports.tasks.add([ports.task()])

    assert await events.last_seq() > newest
    seqs = [event.seq for event in await events.read(0, 100)]
    assert seqs == sorted(set(seqs))


async def test_readers_of_the_log_do_not_wait_for_a_partition_whose_clock_is_behind(spread: Ports) -> None:
    events = RedisEvents(spread.link, spread.places)
    ahead = (int(time.time()) + HOUR_S) * 1_000_000
    await spread.link.ask(1, ("HSET", f"{spread.link.names[1].prefix}meta", "tick", ahead))
    await spread.tasks.add([spread.task(queue=spread.queue_in(1))])

    [told] = await events.read(0, 10)
    assert told.seq > ahead
    await spread.tasks.add([spread.task(queue=spread.queue_in(0))])
    [later] = await events.read(told.seq, 10)
    assert later.seq > told.seq


# a lock is held for too long


async def test_who_was_too_slow_with_the_lock_on_limits_starts_nothing_beyond_them(
    spread: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spread.workers.register(spread.worker(), [Definition(name="send", concurrency=1)], LEASE_MS)
    await spread.tasks.add([spread.task(queue=spread.queue_in(each)) for each in range(2)])
    read, quick = LimitUsage.read, []

    async def slowly(usage: LimitUsage) -> None:
        await read(usage)
        monkeypatch.setattr(LimitUsage, "read", read)
        spread.clock.advance(6)  # the process was stopped, and another has the lock now
        quick.extend(await claim(spread))

    monkeypatch.setattr(LimitUsage, "read", slowly)
    late = await claim(spread)

    assert (len(quick), late) == (1, [])


# news come twice, and late


async def test_a_draft_that_has_moved_on_does_not_come_back_with_old_news(spread: Ports) -> None:
    [draft] = await spread.tasks.add([spread.task(status=Status.DRAFT)])
    for partition in (1, 2):
        [there] = await spread.tasks.get([draft.id])
        assert there is not None
        await spread.tasks.commit(edit(there, now=spread.clock.now(), queue=spread.queue_in(partition)))

    await spread.link.send_again("receive_messages", 0)

    assert len(await spread.keys(f"task:{draft.id}")) == 1
    assert sum(tally.count for tally in await spread.queues.tallies()) == 1


async def test_old_news_of_a_failure_do_not_take_hope_away_again(spread: Ports) -> None:
    on = await spread.start(queue=spread.queue_in(1))
    [dependent] = await spread.tasks.add([spread.task(queue=spread.queue_in(0), depends_on=(on.id,))])
    error = TaskError(kind=FailureKind.UNRECOVERABLE, type="Oops", message="no luck")
    await spread.tasks.commit(settle(on, Failed(error), now=spread.clock.now(), randomness=0.5))
    bad_news = len([name for name, *_ in spread.link.sent if name == "receive_messages"]) - 1
    [failed] = await spread.tasks.get([on.id])
    assert failed is not None
    await spread.tasks.commit(replay(failed, now=spread.clock.now()))

    await spread.link.send_again("receive_messages", bad_news)

    assert (await sweeps_of(spread).due(10)).broken == []
    [waiting] = await spread.tasks.get([dependent.id])
    assert waiting is not None
    assert waiting.waiting_on == 1


async def test_old_news_of_an_end_do_not_start_a_task_that_waits_again(spread: Ports) -> None:
    error = TaskError(kind=FailureKind.UNRECOVERABLE, type="Oops", message="no luck")
    on = await spread.start(queue=spread.queue_in(1))
    anyway = spread.task(queue=spread.queue_in(0), depends_on=(on.id,), after_failure=AfterFailure.RUN)
    await spread.tasks.add([anyway])
    await spread.tasks.commit(settle(on, Failed(error), now=spread.clock.now(), randomness=0.5))
    old_news = len([name for name, *_ in spread.link.sent if name == "receive_messages"]) - 1
    [running] = await claim(spread)
    await spread.tasks.commit(settle(running, Failed(error), now=spread.clock.now(), randomness=0.5))
    for task_id in (on.id, anyway.id):
        [failed] = await spread.tasks.get([task_id])
        assert failed is not None
        await spread.tasks.commit(replay(failed, now=spread.clock.now()))

    await spread.link.send_again("receive_messages", old_news)

    [waiting] = await spread.tasks.get([anyway.id])
    assert waiting is not None
    assert waiting.waiting_on == 1


async def test_news_of_a_failure_that_is_over_by_the_time_they_are_heard_are_corrected(
    spread: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = await spread.start(queue=spread.queue_in(1))
    error = TaskError(kind=FailureKind.UNRECOVERABLE, type="Oops", message="no luck")
    await spread.tasks.commit(settle(on, Failed(error), now=spread.clock.now(), randomness=0.5))
    [failed] = await spread.tasks.get([on.id])
    assert failed is not None
    again, asked = replay(failed, now=spread.clock.now()), list[str]()
    run = spread.link.run

    async def replayed_meanwhile(name: str, partition: int, request: dict[str, Any], **options: Any) -> Any:
        answer = await run(name, partition, request, **options)
        asked.append(name)
        if asked.count("add_remote_waiter") == 1 and name == "add_remote_waiter":
            await spread.tasks.commit(again)
        return answer

    monkeypatch.setattr(spread.link, "run", replayed_meanwhile)
    [dependent] = await spread.tasks.add([spread.task(queue=spread.queue_in(0), depends_on=(on.id,))])

    assert (await sweeps_of(spread).due(10)).broken == []
    await spread.succeed((await claim(spread))[0])
    assert [task.id for task in await claim(spread)] == [dependent.id]


# what is remembered is not so any more


async def test_what_happened_to_a_draft_is_found_after_another_process_has_moved_it(spread: Ports) -> None:
    other = RedisTasks(spread.link, Partitions(spread.link))
    [draft] = await spread.tasks.add([spread.task(status=Status.DRAFT)])
    await other.commit(edit(draft, now=spread.clock.now(), queue=spread.queue_in(1)))

    events = await RedisEvents(spread.link, spread.places).read(0, 10, task_id=draft.id)

    assert len(events) == 2


async def test_what_happened_to_a_draft_before_it_moved_is_kept_as_long_as_it_lives(spread: Ports) -> None:
    events = RedisEvents(spread.link, spread.places)
    [draft] = await spread.tasks.add([spread.task(status=Status.DRAFT)])
    await spread.tasks.commit(edit(draft, now=spread.clock.now(), queue=spread.queue_in(1)))
    told = await events.read(0, 10, task_id=draft.id)
    spread.clock.advance(HOUR_S)

    assert await events.trim(spread.clock.now(), 100) == 0
    assert await events.read(0, 10, task_id=draft.id) == told


async def test_who_waits_for_a_task_that_was_pruned_is_refused_whatever_is_remembered(spread: Ports) -> None:
    running = await spread.start(queue=spread.queue_in(1))
    await spread.tasks.commit(settle(running, Succeeded(raw("1")), now=spread.clock.now(), randomness=0.5))
    stranger = Partitions(spread.link)
    sweeps = RedisSweeps(spread.link, stranger, RedisBlobs(spread.link))
    assert await sweeps.prune([running.id]) == 1

    with pytest.raises(UnknownDependency):
        await spread.tasks.add([spread.task(queue=spread.queue_in(0), depends_on=(running.id,))])


async def test_a_key_whose_task_was_lost_is_free_again(server: Server, ports: Ports) -> None:
    [lost] = await ports.tasks.add([ports.task(idempotency_key="once")])
    server.command("DEL", f"ade:task:{lost.id}")
    again = ports.task(idempotency_key="once")

    assert [task.id for task in await ports.tasks.add([again])] == [again.id]
    assert [task.id for task in await ports.tasks.add([ports.task(idempotency_key="once")])] == [again.id]


async def test_of_a_queue_whose_tasks_are_all_pruned_no_stream_is_left(ports: Ports) -> None:
    running, waiting = await ports.start(), await ports.start(queue="other")
    await ports.succeed(running)

    assert await sweeps_of(ports).prune([running.id]) == 1
    assert await ports.keys("queue:tasks:*") == [b"ade:queue:tasks:other:5"]
    await ports.succeed(waiting)
    again = await ports.start()
    await ports.succeed(again)


async def test_a_level_without_entries_is_not_kept(ports: Ports) -> None:
    [task] = await ports.tasks.add([ports.task()])
    await ports.tasks.commit(cancel(task, None, now=ports.clock.now()))

    assert await ports.keys("queue:levels") == []


# rights


async def test_a_user_who_may_not_use_the_set_names_is_told_about_rights() -> None:
    rules = "~ade:* &ade:* +@all -@dangerous +info +config|get"
    options = RedisSettings(allow_volatile=True, task_stream="stream:task")
    with Server(binary_or_skip("valkey"), Options(users=(User("ade", "pw", rules),))) as guarded:
        stores = await open_redis(guarded.url, options, TestClock())
        with pytest.raises(StoreUnsupported, match="does not allow the user"):
            await Scene(stores, TestClock()).add()
        await stores.close()
