"""What runs leave behind besides their result, and what comes again and again: effects, output, schedules."""

import asyncio

import pytest
from msgspec import structs

from ade import Task
from ade.errors import StaleLease
from tests.conformance.scene import Scene, raw
from tests.domain import OutputLine, Schedule

MOST_LINES = 10_000


async def test_an_effect_is_entered_by_the_first_who_begins_it(scene: Scene) -> None:
    effects = scene.stores.effects

    first = await effects.begin("pay/1", "run-a")
    second = await effects.begin("pay/1", "run-b")

    assert first == second
    assert (first.run_id, first.done, first.answer) == ("run-a", False, None)


async def test_of_many_who_begin_an_effect_at_once_one_is_entered(scene: Scene) -> None:
    entries = await asyncio.gather(*(scene.stores.effects.begin("pay/1", f"run-{n}") for n in range(10)))

    assert len({entry.run_id for entry in entries}) == 1


async def test_a_finished_effect_gives_its_answer_to_everybody(scene: Scene) -> None:
    effects = scene.stores.effects
    await effects.begin("pay/1", "run-a")
    await effects.finish("pay/1", "run-a", raw('{"receipt":7}'))
    await effects.finish("pay/1", "run-a", raw('{"receipt":7}'))  # the answer to the first call was lost

    entry = await effects.begin("pay/1", "run-b")

    assert (entry.run_id, entry.done, entry.answer) == ("run-a", True, raw('{"receipt":7}'))


async def test_only_the_run_that_began_an_effect_can_finish_it(scene: Scene) -> None:
    effects = scene.stores.effects
    await effects.begin("pay/1", "run-a")

    with pytest.raises(StaleLease):
        await effects.finish("pay/1", "run-b", raw("1"))
    with pytest.raises(StaleLease):
        await effects.finish("pay/2", "run-b", raw("1"))


async def test_a_forgotten_effect_may_be_performed_again(scene: Scene) -> None:
    effects = scene.stores.effects
    await effects.begin("pay/1", "run-a")
    await effects.forget("pay/1")

    assert (await effects.begin("pay/1", "run-b")).run_id == "run-b"
    with pytest.raises(StaleLease):
        await effects.finish("pay/1", "run-a", raw("1"))


async def test_old_effects_that_are_done_are_pruned_in_bounded_steps_and_open_ones_stay(scene: Scene) -> None:
    effects = scene.stores.effects
    for number in range(3):
        await effects.begin(f"pay/{number}", "run-a")
        await effects.finish(f"pay/{number}", "run-a", raw("1"))
    await effects.begin("open", "run-a")
    scene.clock.advance(10)
    await effects.begin("young", "run-b")
    await effects.finish("young", "run-b", raw("1"))

    pruned = [await effects.prune_effects(scene.clock.now() - 5_000, 2) for _ in range(3)]

    assert pruned == [2, 1, 0]
    assert (await effects.begin("open", "run-c")).run_id == "run-a"
    assert (await effects.begin("young", "run-c")).run_id == "run-b"
    assert (await effects.begin("pay/0", "run-c")).run_id == "run-c"


async def test_a_run_lives_as_long_as_it_holds_its_task(scene: Scene) -> None:
    running = await scene.start()
    run_id = str(running.run_id)
    assert await scene.stores.effects.is_live(run_id)
    assert not await scene.stores.effects.is_live("nobody")

    await scene.succeed(running)

    assert not await scene.stores.effects.is_live(run_id)


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
