"""Schedules fire once, however many look after them, and make up for what was missed with one task."""

import asyncio
from functools import partial

import pytest
from msgspec import Raw, structs

from ade import Task
from ade.errors import InvalidSchedule, UnknownSchedule
from ade.tasks import schedules
from ade.tasks.enqueue import enqueue_plan
from ade.testing import TestClock
from tests.domain import Definition, Payloads, Queue, Schedule, Stores, TaskSettings, Worker

NIGHTLY = Schedule(name="nightly", cron="0 3 * * *", timezone="Europe/Berlin", task_name="report", queue="night")
HOUR = 3600


async def fire(stores: Stores, payloads: Payloads) -> list[Task]:
    return await schedules.fire_due(stores, payloads, TaskSettings(max_attempts=7))


async def test_a_schedule_fires_when_its_hour_has_come(stores: Stores, payloads: Payloads, clock: TestClock) -> None:
    stored = await schedules.put(stores, NIGHTLY)
    assert stored.next_at == clock.now() + 2 * HOUR * 1000  # 3:00 in Berlin is 2:00 UTC in winter

    assert await fire(stores, payloads) == []
    clock.advance(2 * HOUR)
    [task] = await fire(stores, payloads)

    assert (task.name, task.queue, task.source, task.max_attempts) == ("report", "night", "schedule", 7)
    assert await fire(stores, payloads) == []
    after = await schedules.get(stores, "nightly")
    assert (after.last_task_id, after.next_at) == (task.id, stored.next_at + 24 * HOUR * 1000)


async def test_missed_firings_are_made_up_for_by_one(stores: Stores, payloads: Payloads, clock: TestClock) -> None:
    await schedules.put(stores, NIGHTLY)
    clock.advance(10 * 24 * HOUR)

    assert len(await fire(stores, payloads)) == 1
    assert await fire(stores, payloads) == []


async def test_a_schedule_that_cannot_fire_does_not_hold_up_the_others(
    stores: Stores, payloads: Payloads, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    await stores.queues.configure(Queue(name="full", max_depth=0))
    await schedules.put(stores, Schedule(name="a", cron="* * * * *", task_name="x", queue="full"))
    await schedules.put(stores, Schedule(name="b", cron="* * * * *", task_name="y"))
    clock.advance(61)

    assert [task.name for task in await fire(stores, payloads)] == ["y"]
    [told] = [record for record in caplog.records if record.__dict__.get("event") == "schedule.failed"]
    fields = vars(told)["fields"]
    assert (fields["schedule"], fields["code"]) == ("a", "queue_full")

    await stores.queues.configure(Queue(name="full"))
    assert [task.name for task in await fire(stores, payloads)] == ["x"]


async def test_a_changed_schedule_goes_on_where_a_clock_that_was_put_back_meets_an_old_firing(
    stores: Stores, payloads: Payloads, clock: TestClock
) -> None:
    hourly = Schedule(name="hourly", cron="0 * * * *", task_name="report")
    await schedules.put(stores, hourly)
    clock.advance(HOUR)
    [first] = await fire(stores, payloads)

    clock.jump_wall(-600)
    await schedules.put(stores, structs.replace(hourly, args=Raw(b'{"pages":2}')))
    clock.advance(600)
    assert await fire(stores, payloads) == []
    clock.advance(HOUR)
    [second] = await fire(stores, payloads)

    assert (bytes(first.args), bytes(second.args)) == (b"{}", b'{"pages":2}')


async def test_an_app_that_starts_again_takes_back_a_firing_that_only_a_wrong_clock_put_far_away(
    stores: Stores, payloads: Payloads, clock: TestClock
) -> None:
    await schedules.declare(stores, NIGHTLY)
    year = 365 * 24 * HOUR
    clock.jump_wall(year)
    await fire(stores, payloads)
    clock.jump_wall(-year)

    again = await schedules.declare(stores, NIGHTLY)

    assert again.next_at == clock.now() + 2 * HOUR * 1000
    assert await schedules.get(stores, "nightly") == again
    assert await schedules.declare(stores, NIGHTLY) == again


async def test_many_processes_fire_one_task(stores: Stores, payloads: Payloads, clock: TestClock) -> None:
    await schedules.put(stores, NIGHTLY)
    clock.advance(2 * HOUR)

    fired = await asyncio.gather(*(fire(stores, payloads) for _ in range(8)))

    assert sum(len(tasks) for tasks in fired) == 1
    assert sum(tally.count for tally in await stores.queues.tallies()) == 1


async def test_a_fired_task_gets_what_its_worker_declared(stores: Stores, payloads: Payloads, clock: TestClock) -> None:
    worker = Worker(id="w", hostname="h", pid=1, started_at=0, version="0")
    await stores.workers.register(worker, [Definition(name="report", timeout_ms=9_000)], 30_000)
    await schedules.put(stores, NIGHTLY)
    clock.advance(2 * HOUR)

    [task] = await fire(stores, payloads)
    assert task.timeout_ms == 9_000


async def test_who_wrote_a_schedule_is_the_author_of_what_it_makes(
    stores: Stores, payloads: Payloads, clock: TestClock
) -> None:
    await schedules.put(stores, NIGHTLY, actor="ada")
    await schedules.pause(stores, "nightly", actor="bob")
    await schedules.resume(stores, "nightly", actor="bob")  # bob has not written what it says
    clock.advance(2 * HOUR)
    [first] = await fire(stores, payloads)
    keep = partial(enqueue_plan, stores, payloads)
    by_hand = await schedules.fire_now(stores, TaskSettings(), "nightly", keep, actor="bob")
    assert (first.author_id, by_hand.author_id) == ("ada", "ada")

    await schedules.put(stores, structs.replace(NIGHTLY, args=Raw(b'{"pages":2}')), actor="cy")
    clock.advance(24 * HOUR)
    [second] = await fire(stores, payloads)
    clock.advance(24 * HOUR)
    [third] = await fire(stores, payloads)
    assert (second.author_id, third.author_id) == ("cy", "cy")


async def test_what_an_app_declares_has_an_author_only_if_somebody_is_named(
    stores: Stores, payloads: Payloads, clock: TestClock
) -> None:
    await schedules.declare(stores, NIGHTLY)
    clock.advance(2 * HOUR)
    [task] = await fire(stores, payloads)
    keep = partial(enqueue_plan, stores, payloads)
    by_hand = await schedules.fire_now(stores, TaskSettings(), "nightly", keep, actor="bob")
    assert (task.author_id, by_hand.author_id) == (None, "bob")  # nobody but bob has asked for that

    changed = structs.replace(NIGHTLY, cron="0 4 * * *")
    assert (await schedules.declare(stores, changed, actor="ada")).author == "ada"
    assert (await schedules.declare(stores, changed, actor="bob")).author == "ada"  # it says the same
    assert (await schedules.declare(stores, NIGHTLY)).author is None  # none of what ada wrote is left


async def test_a_paused_schedule_does_not_fire_and_does_not_catch_up(
    stores: Stores, payloads: Payloads, clock: TestClock
) -> None:
    await schedules.put(stores, NIGHTLY)
    await schedules.pause(stores, "nightly")
    clock.advance(48 * HOUR)
    assert await fire(stores, payloads) == []

    await schedules.resume(stores, "nightly")
    assert await fire(stores, payloads) == []
    clock.advance(2 * HOUR)
    assert len(await fire(stores, payloads)) == 1


async def test_a_restart_keeps_the_pause_and_what_is_due(stores: Stores, payloads: Payloads, clock: TestClock) -> None:
    await schedules.declare(stores, NIGHTLY)
    clock.advance(5 * HOUR)
    await schedules.declare(stores, NIGHTLY)  # the app starts again, three hours late
    assert len(await fire(stores, payloads)) == 1

    await schedules.pause(stores, "nightly")
    await schedules.declare(stores, Schedule(name="nightly", cron="0 4 * * *", task_name="report"))
    changed = await schedules.get(stores, "nightly")
    assert (changed.cron, changed.paused) == ("0 4 * * *", True)


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        (Schedule(name="never", cron="0 0 31 2 *", task_name="x"), "never fires"),
        (Schedule(name="wrong", cron="every day", task_name="x"), "not valid"),
        (Schedule(name="zone", cron="0 3 * * *", timezone="Mars/Base", task_name="x"), "unknown"),
        (Schedule(name="", cron="0 3 * * *", task_name="x"), "needs a name"),
    ],
)
async def test_a_schedule_that_makes_no_sense_is_refused(stores: Stores, schedule: Schedule, complaint: str) -> None:
    with pytest.raises(InvalidSchedule, match=complaint):
        await schedules.put(stores, schedule)
    assert await stores.schedules.list_schedules() == []


async def test_an_unknown_schedule_is_an_error(stores: Stores) -> None:
    for verb in (schedules.pause, schedules.resume, schedules.remove):
        with pytest.raises(UnknownSchedule, match="'nightly'"):
            await verb(stores, "nightly")


async def test_a_removed_schedule_is_gone(stores: Stores) -> None:
    await schedules.put(stores, Schedule(name="once", cron="* * * * *", task_name="x", args=Raw(b'{"a":1}')))
    await schedules.remove(stores, "once")
    assert await stores.schedules.list_schedules() == []
