"""What runs leave behind besides their result, and what comes again and again: effects, output, schedules."""

import asyncio

import pytest
from msgspec import structs

from ade import Task
from ade.errors import StaleLease
from tests.conformance.scene import Scene, raw
from tests.domain import Effect, OutputLine, Schedule

MOST_LINES = 10_000


async def begin(scene: Scene, key: str, running: Task) -> Effect:
    return await scene.stores.effects.begin(key, running.id, str(running.run_id))


async def perform(scene: Scene, key: str, running: Task) -> None:
    await begin(scene, key, running)
    await scene.stores.effects.finish(key, str(running.run_id), raw("1"))


async def test_an_effect_is_entered_by_the_first_who_begins_it(scene: Scene) -> None:
    one, two = await scene.start(), await scene.start()

    first = await begin(scene, "pay/1", one)
    second = await begin(scene, "pay/1", two)

    assert first == second
    assert (first.run_id, first.task_id, first.done, first.answer) == (one.run_id, one.id, False, None)


async def test_of_many_who_begin_an_effect_at_once_one_is_entered(scene: Scene) -> None:
    runs = [await scene.start() for _ in range(10)]
    entries = await asyncio.gather(*(begin(scene, "pay/1", running) for running in runs))

    assert len({entry.run_id for entry in entries}) == 1


async def test_a_finished_effect_gives_its_answer_to_everybody(scene: Scene) -> None:
    one, two = await scene.start(), await scene.start()
    await begin(scene, "pay/1", one)
    for _ in range(2):  # the answer to the first call was lost
        await scene.stores.effects.finish("pay/1", str(one.run_id), raw('{"receipt":7}'))

    entry = await begin(scene, "pay/1", two)

    assert (entry.run_id, entry.done, entry.answer) == (one.run_id, True, raw('{"receipt":7}'))


async def test_only_the_run_that_began_an_effect_can_finish_it(scene: Scene) -> None:
    await begin(scene, "pay/1", await scene.start())

    with pytest.raises(StaleLease):
        await scene.stores.effects.finish("pay/1", "run-b", raw("1"))
    with pytest.raises(StaleLease):
        await scene.stores.effects.finish("pay/2", "run-b", raw("1"))


async def test_a_forgotten_effect_may_be_performed_again(scene: Scene) -> None:
    one, two = await scene.start(), await scene.start()
    await begin(scene, "pay/1", one)
    await scene.stores.effects.forget("pay/1")

    assert (await begin(scene, "pay/1", two)).run_id == two.run_id
    with pytest.raises(StaleLease):
        await scene.stores.effects.finish("pay/1", str(one.run_id), raw("1"))


async def test_a_run_that_lost_its_lease_begins_no_effect(scene: Scene) -> None:
    first = await scene.start()
    await scene.let_lease_run_out()
    await scene.sweep()
    [second] = await scene.claim(worker="w2")
    assert second.id == first.id

    for stale in (first, structs.replace(first, id=scene.task().id), structs.replace(first, run_id="unknown")):
        with pytest.raises(StaleLease):
            await begin(scene, "pay/1", stale)

    assert (await begin(scene, "pay/1", second)).run_id == second.run_id


async def test_old_effects_that_are_done_are_pruned_in_bounded_steps_and_open_ones_stay(scene: Scene) -> None:
    old, young = await scene.start(), await scene.start()
    for number in range(3):
        await perform(scene, f"pay/{number}", old)
    await begin(scene, "open", old)
    await scene.succeed(old)
    scene.clock.advance(10)
    assert await scene.stores.sweeps.prune([old.id]) == 1
    await perform(scene, "young", young)

    pruned = [await scene.stores.effects.prune_effects(scene.clock.now() - 5_000, 2) for _ in range(3)]

    assert pruned == [2, 1, 0]
    assert (await begin(scene, "open", young)).run_id == old.run_id
    assert (await begin(scene, "young", young)).done
    assert (await begin(scene, "pay/0", young)).run_id == young.run_id


async def test_an_effect_stays_as_long_as_its_task_does(scene: Scene) -> None:
    """A dead letter that is replayed after months finds its payment."""
    letter, in_progress, finished = await scene.start(), await scene.start(), await scene.start()
    await perform(scene, "pay/letter", letter)
    await perform(scene, "pay/progress", in_progress)
    await perform(scene, "pay/finished", finished)
    await scene.fail_for_good(letter)
    await scene.succeed(finished)
    scene.clock.advance(10)

    async def pruned() -> int:
        return sum([await scene.stores.effects.prune_effects(scene.clock.now(), 2) for _ in range(3)])

    assert await pruned() == 0
    scene.clock.advance(10)
    assert await scene.stores.sweeps.prune([finished.id, in_progress.id]) == 1
    assert await pruned() == 1

    other = await scene.start()
    assert (await begin(scene, "pay/letter", other)).done
    assert (await begin(scene, "pay/progress", other)).done
    assert not (await begin(scene, "pay/finished", other)).done


async def test_a_run_lives_as_long_as_it_holds_its_task(scene: Scene) -> None:
    running = await scene.start()
    run_id = str(running.run_id)
    assert await scene.stores.effects.is_live(running.id, run_id)
    assert not await scene.stores.effects.is_live(running.id, "nobody")
    assert not await scene.stores.effects.is_live("nothing", run_id)

    await scene.succeed(running)

    assert not await scene.stores.effects.is_live(running.id, run_id)


def line(task: Task, text: str, **fields: object) -> OutputLine:
    known: dict[str, object] = {
        "task_id": task.id,
        "run_id": str(task.run_id),
        "attempt": task.attempt,
        "at": 5,
        "text": text,
    }
    return OutputLine(**(known | fields))  # type: ignore[arg-type]  # any field, by its name


async def test_output_is_read_in_the_order_it_was_written(scene: Scene) -> None:
    running = await scene.start()
    await scene.stores.outputs.append([line(running, "one"), line(running, "two", stream="stderr")])
    await scene.stores.outputs.append([line(running, "three \0 ü")])

    lines = await scene.stores.outputs.read_output(running.id, 0, 2)
    rest = await scene.stores.outputs.read_output(running.id, lines[-1].seq, 10)

    assert [(entry.text, entry.stream) for entry in lines + rest] == [
        ("one", "log"),
        ("two", "stderr"),
        ("three \0 ü", "log"),
    ]
    assert {(entry.run_id, entry.attempt, entry.at) for entry in lines} == {(running.run_id, 1, 5)}


async def test_no_output_is_no_error(scene: Scene) -> None:
    await scene.stores.outputs.append([])

    assert await scene.stores.outputs.read_output(scene.task().id, 0, 10) == []


async def test_output_of_several_runs_in_one_call_is_kept_apart(scene: Scene) -> None:
    one, two = await scene.start(), await scene.start()
    await scene.stores.outputs.append([line(one, "a"), line(two, "b"), line(one, "c")])

    assert [entry.text for entry in await scene.stores.outputs.read_output(one.id, 0, 10)] == ["a", "c"]
    assert [entry.text for entry in await scene.stores.outputs.read_output(two.id, 0, 10)] == ["b"]


async def _all_lines(scene: Scene, task: Task) -> list[str]:
    return [entry.text for entry in await scene.stores.outputs.read_output(task.id, 0, 2 * MOST_LINES)]


async def test_output_without_end_is_cut_with_a_mark(scene: Scene) -> None:
    running = await scene.start()
    await scene.stores.outputs.append([line(running, str(n)) for n in range(MOST_LINES - 1)])
    await scene.stores.outputs.append([line(running, "last"), line(running, "too much"), line(running, "more")])
    await scene.stores.outputs.append([line(running, "still more")])

    lines = await _all_lines(scene, running)

    assert lines[MOST_LINES - 2 : MOST_LINES] == [str(MOST_LINES - 2), "last"]
    assert lines[MOST_LINES:] == [f"[output cut after {MOST_LINES} lines]"]


async def test_output_that_just_fits_is_not_cut(scene: Scene) -> None:
    running = await scene.start()
    await scene.stores.outputs.append([line(running, str(n)) for n in range(MOST_LINES)])

    assert await _all_lines(scene, running) == [str(n) for n in range(MOST_LINES)]


async def test_a_talkative_run_does_not_use_up_the_room_of_another(scene: Scene) -> None:
    loud, quiet = await scene.start(), await scene.start()
    await scene.stores.outputs.append([line(loud, "x")] * MOST_LINES)
    await scene.stores.outputs.append([line(loud, "x"), line(quiet, "heard")])

    assert await _all_lines(scene, quiet) == ["heard"]


async def test_the_next_attempt_has_room_of_its_own(scene: Scene) -> None:
    first = await scene.start()
    await scene.stores.outputs.append([line(first, "x")] * (MOST_LINES + 1))
    await scene.fail(first)
    scene.clock.advance(1)
    [second] = await scene.claim()

    await scene.stores.outputs.append([line(second, "again")])

    assert (await _all_lines(scene, first))[-1] == "again"


def nightly(**fields: object) -> Schedule:
    known: dict[str, object] = {"name": "nightly", "cron": "0 3 * * *", "task_name": "report", "next_at": 1_000}
    return Schedule(**(known | fields))  # type: ignore[arg-type]  # any field, by its name


async def test_a_schedule_comes_back_as_it_was_put(scene: Scene) -> None:
    known = {"timezone": "Europe/Berlin", "queue": "q", "args": raw('{"n":1}'), "priority": 1}
    schedule = nightly(**known, updated_at=9, author="ada")
    assert await scene.stores.schedules.put(nightly(cron="1 1 * * *"))
    assert await scene.stores.schedules.put(schedule)
    await scene.stores.schedules.put(nightly(name="hourly"))

    assert await scene.stores.schedules.list_schedules() == [nightly(name="hourly"), schedule]


async def test_a_schedule_is_due_when_its_time_has_come_and_it_is_not_paused(scene: Scene) -> None:
    schedules = scene.stores.schedules
    await schedules.put(nightly(name="paused", paused=True))
    await schedules.put(nightly(name="late", next_at=2_000))
    await schedules.put(nightly())

    assert await schedules.list_schedules(due_by=999) == []
    assert [schedule.name for schedule in await schedules.list_schedules(due_by=1_000)] == ["nightly"]
    assert [schedule.name for schedule in await schedules.list_schedules(due_by=2_000)] == ["nightly", "late"]


async def test_a_schedule_moves_on_once_however_many_fire_it(scene: Scene) -> None:
    schedules = scene.stores.schedules
    seen = nightly(author="ada")
    await schedules.put(seen)
    after = structs.replace(seen, next_at=5_000, last_at=1_000, last_task_id="t")

    moved = await asyncio.gather(*(schedules.put(after, seen=seen) for _ in range(8)))

    assert sum(moved) == 1
    assert await schedules.list_schedules() == [after]


async def test_a_schedule_that_was_paused_or_changed_meanwhile_is_not_moved_on(scene: Scene) -> None:
    schedules = scene.stores.schedules
    seen = nightly(updated_at=1)
    for now_stored in (
        structs.replace(seen, paused=True, updated_at=2),
        structs.replace(seen, paused=True),
        structs.replace(seen, cron="5 5 * * *", updated_at=2),
    ):
        await schedules.put(now_stored)
        assert not await schedules.put(structs.replace(seen, next_at=5_000), seen=seen)
        assert await schedules.list_schedules() == [now_stored]


async def test_a_removed_schedule_is_gone_and_stays_gone(scene: Scene) -> None:
    schedules = scene.stores.schedules
    seen = nightly()
    await schedules.put(seen)

    assert await schedules.remove("nightly")
    assert not await schedules.remove("nightly")
    assert not await schedules.put(structs.replace(seen, next_at=5_000), seen=seen)
    assert await schedules.list_schedules() == []
