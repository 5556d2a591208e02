"""The log: what happened, in order, committed with the change it describes."""

import asyncio

from msgspec import structs

from tests.conformance.scene import Scene
from tests.domain import Event, Queue, Schedule


async def read_all(scene: Scene, after: int = 0) -> list[Event]:
    return await scene.stores.events.read(after, 10_000)


async def test_an_empty_log_ends_at_zero(scene: Scene) -> None:
    assert await scene.stores.events.last_seq() == 0
    assert await read_all(scene) == []


async def test_the_life_of_a_task_is_in_the_log_in_order(scene: Scene) -> None:
    running = await scene.start()
    await scene.fail(running)
    scene.clock.advance(1)
    await scene.succeed((await scene.claim())[0])

    events = await scene.stores.events.read(0, 100, task_id=running.id)

    assert [event.type for event in events] == [
        "task.created",
        "task.claimed",
        "task.retry_scheduled",
        "task.claimed",
        "task.succeeded",
    ]
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert events[2].payload["delay_ms"] == 1000
    assert events[-1].at == scene.clock.now()


async def test_what_somebody_does_to_queues_and_schedules_is_in_the_log_too(scene: Scene) -> None:
    stores, now = scene.stores, scene.clock.now()
    await scene.add()
    paused = Event(type="queue.paused", at=now, actor="cli:ann", payload={"queue": "mail"})
    changed = Event(type="schedule.changed", at=now, payload={"schedule": "nightly"})
    removed = Event(type="schedule.removed", at=now, payload={"schedule": "nightly"})

    await stores.queues.configure(Queue(name="mail", paused=True), paused)
    await stores.schedules.put(Schedule(name="nightly", cron="0 3 * * *", task_name="send"), changed)
    assert await stores.schedules.remove("nightly", removed)
    assert not await stores.schedules.remove("nightly", removed)

    told = (await read_all(scene))[1:]
    assert [structs.replace(event, seq=0) for event in told] == [paused, changed, removed]
    scene.clock.advance(60)
    assert await stores.events.trim(scene.clock.now(), 100) == 3


async def test_seqs_rise_over_all_tasks(scene: Scene) -> None:
    await asyncio.gather(*(scene.add() for _ in range(30)))
    await asyncio.gather(*(scene.run(5) for _ in range(6)))

    seqs = [event.seq for event in await read_all(scene)]

    assert len(seqs) == 90
    assert seqs == sorted(set(seqs))
    assert await scene.stores.events.last_seq() == seqs[-1]


async def test_the_log_is_read_page_by_page(scene: Scene) -> None:
    await scene.add_many(10)

    first = await scene.stores.events.read(0, 4)
    rest = await scene.stores.events.read(first[-1].seq, 100)

    assert (len(first), len(rest)) == (4, 6)
    assert first + rest == await read_all(scene)


async def test_the_newest_events_come_in_order(scene: Scene) -> None:
    assert await scene.stores.events.newest(5) == []
    await scene.add_many(4)
    await scene.run(4)

    everything = await read_all(scene)

    assert await scene.stores.events.newest(5) == everything[-5:]
    assert await scene.stores.events.newest(100) == everything


async def test_one_tasks_events_can_be_read_page_by_page(scene: Scene) -> None:
    task = await scene.start()
    await scene.add_many(5)
    await scene.cancel(task.id)

    [first] = await scene.stores.events.read(0, 1, task_id=task.id)
    rest = await scene.stores.events.read(first.seq, 10, task_id=task.id)

    assert [event.type for event in rest] == ["task.claimed", "task.cancelled"]
    assert await scene.stores.events.read(0, 10, task_id=scene.task().id) == []


async def test_a_refused_change_leaves_no_trace(scene: Scene) -> None:
    late = await scene.start()
    await scene.let_lease_run_out()
    await scene.claim(worker="w2")
    before = await read_all(scene)

    await scene.stores.tasks.commit_each([scene.success(late)])

    assert await read_all(scene) == before


async def test_a_cursor_remembers_how_far_a_reader_has_come(scene: Scene) -> None:
    events = scene.stores.events
    assert (await events.cursors()).get("audit", 0) == 0

    await events.advance("audit", 7)
    await events.advance("hooks", 3)
    await events.advance("audit", 5)  # somebody slow: a cursor never moves back

    assert (await events.cursors()).get("audit", 0) == 7
    assert await events.cursors() == {"audit": 7, "hooks": 3}


async def _three_gone_one_kept(scene: Scene) -> str:
    gone = [await scene.start() for _ in range(3)]
    for task in gone:
        await scene.succeed(task)
    kept = await scene.add()
    await scene.stores.sweeps.prune([task.id for task in gone])
    scene.clock.advance(10)
    return kept.id


async def test_old_events_of_tasks_that_are_gone_are_trimmed(scene: Scene) -> None:
    kept = await _three_gone_one_kept(scene)
    last = await scene.stores.events.last_seq()
    await scene.stores.events.advance("audit", last)

    trimmed = await scene.stores.events.trim(scene.clock.now(), 100)

    assert trimmed == 9
    assert [event.task_id for event in await read_all(scene)] == [kept]
    assert await scene.stores.events.last_seq() == last
    await scene.add()
    assert (await read_all(scene))[-1].seq > last


async def test_nothing_is_trimmed_that_some_reader_has_not_seen(scene: Scene) -> None:
    await _three_gone_one_kept(scene)
    seqs = [event.seq for event in await read_all(scene)]
    await scene.stores.events.advance("quick", seqs[-1])
    await scene.stores.events.advance("slow", seqs[3])

    assert await scene.stores.events.trim(scene.clock.now(), 100) == 4
    assert (await read_all(scene))[0].seq == seqs[4]


async def test_without_readers_nobody_can_miss_an_event(scene: Scene) -> None:
    await _three_gone_one_kept(scene)

    assert await scene.stores.events.trim(scene.clock.now(), 100) == 9


async def test_young_events_are_not_trimmed(scene: Scene) -> None:
    await _three_gone_one_kept(scene)
    await scene.stores.events.advance("audit", await scene.stores.events.last_seq())

    assert await scene.stores.events.trim(scene.clock.now() - 10_000, 100) == 0


async def test_a_clock_that_was_wrong_for_a_while_costs_no_young_event(scene: Scene) -> None:
    await _three_gone_one_kept(scene)
    young = {event.seq for event in await read_all(scene)}
    year = 365 * 86_400.0
    scene.clock.jump_wall(-year)
    late = [await scene.start(priority=0) for _ in range(6)]
    for task in late:
        await scene.succeed(task)
    await scene.stores.sweeps.prune([task.id for task in late])
    scene.clock.jump_wall(year)

    await scene.stores.events.trim(scene.clock.now() - 3_600_000, 100)

    assert young <= {event.seq for event in await read_all(scene)}


async def test_trimming_goes_in_bounded_steps(scene: Scene) -> None:
    await _three_gone_one_kept(scene)
    await scene.stores.events.advance("audit", await scene.stores.events.last_seq())

    assert [await scene.stores.events.trim(scene.clock.now(), 4) for _ in range(4)] == [4, 4, 1, 0]
