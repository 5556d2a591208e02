"""Tasks that wait for others: let go when those complete, put up for a decision when they never will."""

import asyncio
from typing import Any

import pytest

from ade import Status, Task
from tests.conformance.scene import Scene
from tests.domain import BIRTHS, WORK, AfterFailure, Verb, cancel, change


async def broken(scene: Scene) -> dict[str, tuple[str, ...]]:
    return {task.id: failed for task, failed in (await scene.stores.sweeps.due(100)).broken}


async def test_a_task_starts_when_what_it_waits_for_has_completed(scene: Scene) -> None:
    first = await scene.add()
    second = await scene.add(depends_on=(first.id,))
    assert (await scene.get(second.id)).waiting_on == 1

    assert await scene.run(10) == [first.id]
    assert (await scene.get(second.id)).waiting_on == 0
    assert await scene.run(10) == [second.id]


async def test_a_chain_given_in_one_call_runs_link_by_link(scene: Scene) -> None:
    a = scene.task()
    b = scene.task(depends_on=(a.id,))
    c = scene.task(depends_on=(b.id,))
    await scene.add_all(c, b, a)

    assert [await scene.run(10) for _ in range(4)] == [[a.id], [b.id], [c.id], []]


async def test_a_diamond_waits_for_both_its_sides(scene: Scene) -> None:
    top = await scene.add()
    left, right = await scene.add_many(2, depends_on=(top.id,))
    bottom = await scene.add(depends_on=(left.id, right.id))

    assert await scene.run(10) == [top.id]
    assert await scene.run(1) == [left.id]
    assert (await scene.get(bottom.id)).waiting_on == 1
    assert await scene.run(10) == [right.id]
    assert await scene.run(10) == [bottom.id]


async def test_both_sides_of_a_diamond_may_end_in_one_write(scene: Scene) -> None:
    left, right = await scene.add_many(2)
    bottom = await scene.add(depends_on=(left.id, right.id))
    runs = await scene.claim(2)

    await scene.stores.tasks.commit_each([scene.success(task) for task in runs])

    assert await scene.run(10) == [bottom.id]


async def test_both_sides_of_a_diamond_may_end_at_once_from_two_callers(scene: Scene) -> None:
    left, right = await scene.add_many(2)
    bottom = await scene.add(depends_on=(left.id, right.id))
    runs = await scene.claim(2)

    await asyncio.gather(*(scene.succeed(task) for task in runs))

    assert await scene.run(10) == [bottom.id]


async def test_what_has_completed_already_is_not_waited_for(scene: Scene) -> None:
    done = await scene.start()
    await scene.succeed(done)

    late = await scene.add(depends_on=(done.id,))

    assert (await scene.get(late.id)).waiting_on == 0
    assert await scene.run(10) == [late.id]


@pytest.mark.parametrize("end", ["fail", "cancel"])
async def test_what_has_failed_already_will_never_be_met(scene: Scene, end: str) -> None:
    first = await scene.start()
    await (scene.fail_for_good(first) if end == "fail" else scene.cancel(first.id))

    late = await scene.add(depends_on=(first.id,))

    assert await scene.claim(10) == []
    assert await broken(scene) == {late.id: (first.id,)}
    await scene.sweep()
    assert await scene.status(late.id) == Status.CANCELLED


@pytest.mark.parametrize(
    ("spec", "outcome"), [(AfterFailure.CANCEL, Status.CANCELLED), (AfterFailure.FAIL, Status.FAILED)]
)
async def test_a_failure_puts_what_waits_for_it_up_for_a_decision(
    scene: Scene, spec: AfterFailure, outcome: Status
) -> None:
    first = await scene.start()
    second = await scene.add(depends_on=(first.id,), after_failure=spec)
    assert await broken(scene) == {}

    await scene.fail_for_good(first)

    assert await scene.claim(10) == []
    assert await broken(scene) == {second.id: (first.id,)}
    await scene.sweep()
    assert await scene.status(second.id) == outcome
    assert await broken(scene) == {}


async def test_a_chain_breaks_link_by_link(scene: Scene) -> None:
    first = await scene.start()
    second = await scene.add(depends_on=(first.id,))
    third = await scene.add(depends_on=(second.id,))
    await scene.cancel(first.id)

    await scene.sweep()
    assert await broken(scene) == {third.id: (second.id,)}
    await scene.sweep()

    assert await scene.statuses(second, third) == [Status.CANCELLED] * 2


async def test_all_dependencies_that_failed_are_named_and_no_others(scene: Scene) -> None:
    tasks = await scene.add_many(3)
    waiting = await scene.add(depends_on=tuple(task.id for task in tasks))
    first, second, _ = await scene.claim(3)
    await scene.cancel(first.id)
    await scene.fail_for_good(second)

    assert {task: set(ids) for task, ids in (await broken(scene)).items()} == {waiting.id: {first.id, second.id}}


async def test_a_tolerant_task_runs_whatever_becomes_of_the_others(scene: Scene) -> None:
    failing, cancelled, fine = await scene.add_many(3)
    ids = (failing.id, cancelled.id, fine.id)
    tolerant = await scene.add(depends_on=ids, after_failure=AfterFailure.RUN)
    first, _, third = await scene.claim(3)
    await scene.fail_for_good(first)
    await scene.cancel(cancelled.id)
    assert await scene.claim() == []

    await scene.succeed(third)

    assert await broken(scene) == {}
    assert await scene.run(10) == [tolerant.id]
    late = await scene.add(depends_on=ids, after_failure=AfterFailure.RUN)
    assert await scene.run(10) == [late.id]


async def test_a_retry_is_no_failure_yet(scene: Scene) -> None:
    first = await scene.start()
    second = await scene.add(depends_on=(first.id,))
    await scene.fail(first)
    assert await broken(scene) == {}
    scene.clock.advance(1)

    assert await scene.run(10) == [first.id]
    assert await scene.run(10) == [second.id]


async def test_a_replayed_task_is_waited_for_again(scene: Scene) -> None:
    first = await scene.start()
    second = await scene.add(depends_on=(first.id,))
    await scene.fail_for_good(first)

    await scene.replay(first.id)

    assert await broken(scene) == {}
    assert await scene.run(10) == [first.id]
    assert await scene.run(10) == [second.id]


async def test_a_task_that_waits_and_is_delayed_waits_for_both(scene: Scene) -> None:
    first = await scene.add()
    second = await scene.add(depends_on=(first.id,), run_after=scene.clock.now() + 5_000)
    await scene.run(10)
    assert await scene.run(10) == []
    assert await scene.stores.sweeps.next_due() == second.run_after

    scene.clock.advance(5)

    assert await scene.run(10) == [second.id]


async def test_a_time_that_comes_while_a_task_waits_does_not_let_it_go(scene: Scene) -> None:
    first = await scene.start()
    second = await scene.add(depends_on=(first.id,), run_after=scene.clock.now() + 1_000)
    scene.clock.advance(2)
    assert await scene.claim() == []

    await scene.succeed(first)

    assert await scene.run(10) == [second.id]


async def test_a_waiting_task_can_be_cancelled_and_its_dependency_ends_in_peace(scene: Scene) -> None:
    first = await scene.start()
    second = await scene.add(depends_on=(first.id,))
    third = await scene.add(depends_on=(second.id,))

    await scene.cancel(second.id)

    assert (await scene.get(second.id)).waiting_on == 0
    await scene.succeed(first)
    assert await broken(scene) == {third.id: (second.id,)}


async def test_a_task_and_what_waits_for_it_can_be_cancelled_in_one_commit(scene: Scene) -> None:
    first = await scene.add()
    second = await scene.add(depends_on=(first.id,))

    await scene.stores.tasks.commit(*(cancel(task, None, now=scene.clock.now()) for task in (first, second)))

    assert await broken(scene) == {}
    assert await scene.stores.sweeps.prune([first.id, second.id]) == 2


async def test_drafts_that_wait_in_vain_do_not_hide_tasks_that_do(scene: Scene) -> None:
    first = await scene.start()
    await scene.add_many(5, status=Status.DRAFT, depends_on=(first.id,))
    waiting: Task = await scene.add(depends_on=(first.id,))
    await scene.cancel(first.id)

    due = await scene.stores.sweeps.due(2)

    assert [task.id for task, _ in due.broken] == [waiting.id]


async def under_review(scene: Scene, status: Status, **fields: Any) -> Task:
    """A task that waits for people, or for its start, and has not run."""
    born = status if status in BIRTHS else Status.REVIEWING
    task = await scene.add(status=born, **fields)
    if born is not status:
        await scene.stores.tasks.commit(change(task, Verb.APPROVE, now=scene.clock.now(), target=status))
    return await scene.get(task.id)


@pytest.mark.parametrize("status", [Status.SUBMITTED, Status.REVIEWING, Status.APPROVED])
@pytest.mark.parametrize(
    ("spec", "outcome"), [(AfterFailure.CANCEL, Status.CANCELLED), (AfterFailure.FAIL, Status.FAILED)]
)
async def test_a_failure_ends_a_review_that_waits_for_it(
    scene: Scene, status: Status, spec: AfterFailure, outcome: Status
) -> None:
    first = await scene.start()
    before = await under_review(scene, status, depends_on=(first.id,), after_failure=spec)
    await scene.fail_for_good(first)
    late = await under_review(scene, status, depends_on=(first.id,), after_failure=spec)

    assert await broken(scene) == {before.id: (first.id,), late.id: (first.id,)}
    await scene.sweep()
    assert await scene.statuses(before, late) == [outcome] * 2
    assert await broken(scene) == {}


@pytest.mark.parametrize("status", [Status.SUBMITTED, Status.REVIEWING, Status.APPROVED])
async def test_a_failure_leaves_a_tolerant_review_alone(scene: Scene, status: Status) -> None:
    first = await scene.start()
    task = await under_review(scene, status, depends_on=(first.id,), after_failure=AfterFailure.RUN)
    await scene.fail_for_good(first)

    assert await broken(scene) == {}
    await scene.sweep()
    assert await scene.status(task.id) is status


async def test_a_draft_waits_in_vain_until_it_is_submitted(scene: Scene) -> None:
    first = await scene.start()
    draft = await scene.add(status=Status.DRAFT, depends_on=(first.id,))
    await scene.fail_for_good(first)
    assert await broken(scene) == {}

    await scene.stores.tasks.commit(change(await scene.get(draft.id), Verb.SUBMIT, now=scene.clock.now()))

    assert await broken(scene) == {draft.id: (first.id,)}


async def test_a_review_that_goes_back_to_its_author_is_a_draft_like_any_other(scene: Scene) -> None:
    first = await scene.start()
    task = await scene.add(status=Status.REVIEWING, depends_on=(first.id,))
    await scene.fail_for_good(first)
    asked = change(await scene.get(task.id), Verb.REQUEST_CHANGES, now=scene.clock.now())
    await scene.stores.tasks.commit(asked)
    for _ in range(2):  # the first look might find it in an index, the second must not
        assert await broken(scene) == {}
    waiting = await scene.add(depends_on=(first.id,))
    assert [each.id for each, _ in (await scene.stores.sweeps.due(1)).broken] == [waiting.id]


async def test_a_replayed_dependency_gives_a_review_another_chance(scene: Scene) -> None:
    first = await scene.start()
    task = await scene.add(status=Status.REVIEWING, depends_on=(first.id,))
    await scene.fail_for_good(first)
    await scene.replay(first.id)

    assert await broken(scene) == {}
    await scene.sweep()
    assert await scene.status(task.id) is Status.REVIEWING


async def test_a_deadline_ends_a_wait(scene: Scene) -> None:
    first = await scene.start()
    second = await scene.add(depends_on=(first.id,), deadline=scene.clock.now() + 5_000)
    scene.clock.advance(5)

    await scene.sweep()

    assert await scene.status(second.id) == Status.FAILED
    await scene.succeed(first)
    assert await scene.status(second.id) == Status.FAILED


async def test_a_thousand_tasks_wait_for_one(scene: Scene) -> None:
    first = await scene.start()
    await scene.add_many(1000, depends_on=(first.id,))

    await scene.succeed(first)

    assert len(await scene.claim(2000)) == 1000


async def test_workers_hear_of_tasks_that_stand_in_line_because_another_ended(scene: Scene) -> None:
    first = await scene.add()
    await scene.add(depends_on=(first.id,))
    [running] = await scene.claim()
    heard = scene.stores.wakeups.generation(WORK)
    await scene.succeed(running)
    assert scene.stores.wakeups.generation(WORK) > heard
