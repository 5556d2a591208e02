"""Metrics: counters that outlive processes, and gauges of what is there now."""

from typing import Any, cast

import pytest
from msgspec.structs import replace
from prometheus_client import parser

from ade import VERSION, Status
from ade.approvals import submission
from ade.events.metrics_collector import MetricsCollector
from ade.locks.model import LockItem, LockLimits, LockMode, LockRequest
from ade.locks.rules import DEADLOCK
from ade.settings.sections import FigureSettings
from tests.domain import Event, Metrics, Review, Stores, User, Worker, add_user, events_after
from tests.tasks.queue_driver import QueueDriver

Read = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(stores: Stores, metrics: Metrics | None = None) -> Read:
    _, text = await (metrics or Metrics(stores, events_after)).text()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(read: Read, metric: str, /, **labels: str) -> float | None:
    return read.get((metric, frozenset(labels.items())))


async def count(stores: Stores) -> None:
    await MetricsCollector(stores, FigureSettings()).keep()


async def test_what_happened_is_counted_by_queue_and_name(queue: QueueDriver, stores: Stores) -> None:
    await queue.enqueue(queue="mail")
    queue.clock.advance(0.3)
    await queue.complete(await queue.claim())
    await queue.dead_letter()
    await count(stores)

    read = await scrape(stores)
    mail = {"queue": "mail", "name": "send"}
    assert value(read, "ade_tasks_enqueued_total", **mail) == 1
    assert value(read, "ade_tasks_completed_total", **mail) == 1
    assert value(read, "ade_tasks_failed_total", queue="default", name="send") == 1
    assert value(read, "ade_task_wait_ms_count", **mail) == 1
    assert value(read, "ade_task_wait_ms_bucket", **mail, le="250.0") == 0
    assert value(read, "ade_task_wait_ms_bucket", **mail, le="500.0") == 1
    assert value(read, "ade_task_attempts_sum", **mail) == 1
    assert value(read, "ade_dead_letters") == 1
    assert value(read, "ade_build_info", version=VERSION) == 1


async def test_counters_never_fall_whoever_answers(queue: QueueDriver, stores: Stores) -> None:
    before: Read = {}
    for _ in range(3):
        await queue.enqueue()
        await queue.complete(await queue.claim())
        await count(stores)  # each time by another one, which knows nothing of the one before
        read = await scrape(stores)
        falling = [
            key for key in before if key[0].endswith(("_total", "_bucket", "_count")) and before[key] > read[key]
        ]
        assert falling == []
        before = read
    assert value(before, "ade_tasks_completed_total", queue="default", name="send") == 3


async def test_gauges_tell_what_is_there_now(queue: QueueDriver, stores: Stores) -> None:
    now = queue.clock.now()
    worker = Worker(id="w1", hostname="h", pid=1, started_at=0, version="0", progress_at=now)
    await stores.workers.register(worker, [], 30_000)
    silent = Worker(id="w2", hostname="h", pid=1, started_at=0, version="0", progress_at=now)
    await stores.workers.register(silent, [], 1_000)
    await queue.enqueue(queue="mail")
    await queue.enqueue(queue="mail", run_after=now + 60_000)
    await queue.enqueue("print")
    await queue.claim("print")
    queue.clock.advance(5)

    read = await scrape(stores)
    assert value(read, "ade_queue_pending_total", queue="mail", name="send") == 2
    assert value(read, "ade_queue_delayed_total") == 1
    assert value(read, "ade_queue_stream_length", queue="mail") == 2
    assert value(read, "ade_queue_stream_length", queue="default") == 1
    assert value(read, "ade_tasks_running", queue="default", name="print") == 1
    assert value(read, "ade_queue_oldest_ready_age_ms", queue="mail") == 5_000
    assert (value(read, "ade_workers_active_total"), value(read, "ade_workers_dead_total")) == (1, 1)


async def test_an_agent_has_as_many_queued_tasks_as_its_workers_serve(queue: QueueDriver, stores: Stores) -> None:
    def worker(worker_id: str, agent: str | None, names: tuple[str, ...], *queues: str) -> Worker:
        now = queue.clock.now()
        about = {"hostname": "h", "pid": 1, "started_at": now, "version": "0", "progress_at": now}
        return Worker(id=worker_id, agent=agent, names=names, queues=queues, **about)  # type: ignore[arg-type]

    for each in (
        worker("w1", "coder", ("send", "print"), "mail"),
        worker("w2", "coder", ("send",), "mail"),  # serves the same tasks, which count once
        worker("w3", "writer", ("send",)),
        worker("w4", "idle", ("draw",)),
        worker("w5", None, ("send",)),
    ):
        await stores.workers.register(each, [], 30_000)
    await stores.workers.register(worker("w6", "lost", ("send",)), [], 1_000)
    queue.clock.advance(5)
    for _ in range(3):
        await queue.enqueue("send", queue="mail")
    await queue.enqueue("send", queue="post")
    await queue.enqueue("print")
    await queue.claim("print")

    read = await scrape(stores)
    queued = {agent: value(read, "ade_agent_queued_tasks", agent=agent) for agent in ("coder", "writer", "idle")}
    assert queued == {"coder": 3, "writer": 4, "idle": 0}
    assert "lost" not in str(read)


async def test_people_and_locks_are_waited_for(queue: QueueDriver, stores: Stores) -> None:
    await add_user(stores, User(id="ada", roles=frozenset({"admin"})))
    draft = await queue.enqueue("deploy", status=Status.DRAFT, author_id="ada", review=Review())
    await submission.submit(stores, queue.payloads, draft.id, actor="ada")
    queue.clock.advance(7)
    for owner in ("one", "two"):
        item = LockItem("db:main", LockMode.EXCLUSIVE)
        asked = LockRequest(id=owner, owner=owner, scope=owner, items=(item,), ttl_ms=60_000)
        await stores.locks.acquire(asked, wait_ms=None, limits=LockLimits())
    told = Event(type=DEADLOCK, at=queue.clock.now(), payload={"namespace": "default"})
    await stores.documents.write([], [told])
    await count(stores)

    read = await scrape(stores)
    assert (value(read, "ade_approvals_waiting"), value(read, "ade_approvals_oldest_age_ms")) == (1, 7_000)
    assert (value(read, "ade_locks_held"), value(read, "ade_locks_waiting")) == (1, 1)
    assert value(read, "ade_lock_deadlocks_total") == 1


async def test_how_far_readers_are_behind(queue: QueueDriver, stores: Stores) -> None:
    await queue.enqueue()
    await stores.events.advance("audit", await stores.events.last_seq())
    await count(stores)
    await queue.enqueue()
    await queue.enqueue()

    read = await scrape(stores)
    assert value(read, "ade_event_cursor_lag", reader="audit") == 2
    assert value(read, "ade_event_cursor_lag", reader="figures") == 2


async def test_who_asks_again_within_a_second_is_told_the_same(queue: QueueDriver, stores: Stores) -> None:
    now = 0.0
    metrics = Metrics(stores, events_after, clock=lambda: now)
    assert value(await scrape(stores, metrics), "ade_queue_pending_total", queue="default", name="send") is None
    await queue.enqueue()
    assert value(await scrape(stores, metrics), "ade_queue_pending_total", queue="default", name="send") is None
    now = 1.0
    assert value(await scrape(stores, metrics), "ade_queue_pending_total", queue="default", name="send") == 1


async def test_labels_are_bounded_whatever_names_there_are(
    queue: QueueDriver, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ade.events import metrics as events_metrics

    monkeypatch.setattr(events_metrics, "MOST_GROUPS_EVER", 2)
    for name in ("a", "b", "c", "d"):
        await queue.enqueue(queue=name)
    read = await scrape(stores)
    pending = {labels: found for (name, labels), found in read.items() if name == "ade_queue_pending_total"}
    assert sorted(pending.values()) == [1, 1, 2]
    assert pending[frozenset({("queue", "other"), ("name", "other")})] == 2
    assert len([name for name, _ in read if name == "ade_queue_oldest_ready_age_ms"]) == 2


async def test_a_scrape_reads_no_more_when_there_is_more(queue: QueueDriver, stores: Stores) -> None:
    reads = 0

    class Counted:
        """A part of the store; counts who calls."""

        def __init__(self, real: object) -> None:
            self._real = real

        def __getattr__(self, name: str) -> object:
            nonlocal reads
            reads += 1
            return getattr(self._real, name)

    watched = replace(
        stores,
        **{
            part: cast(Any, Counted(getattr(stores, part)))
            for part in ("queues", "documents", "tasks", "locks", "workers")
        },
    )

    async def cost() -> int:
        nonlocal reads
        reads = 0
        await scrape(watched)
        return reads

    await queue.enqueue()
    few = await cost()
    for _ in range(20):
        await queue.enqueue(queue="mail")
    assert await cost() == few <= 8
