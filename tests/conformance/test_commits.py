"""Decided changes are written whole or not at all, and only by who may still write."""

import asyncio

import pytest
from msgspec import structs

from ade import Status, Task
from ade.errors import StaleLease, StaleWrite
from ade.failures import FailureKind
from ade.tasks.decisions import cancel, discard, lose_lease, replay
from tests.conformance.scene import Scene, raw
from tests.domain import ChangePrecondition, Verb, change


async def test_what_was_decided_is_what_is_stored(scene: Scene) -> None:
    running = await scene.start()
    scene.clock.advance(3)
    success = scene.success(running, '{"n":[1,2.50,"ü"]}')

    await scene.stores.tasks.commit(success)

    assert await scene.get(running.id) == success.after


async def test_every_field_a_failure_touches_is_stored(scene: Scene) -> None:
    running = await scene.start()
    for kind in (FailureKind.TIMED_OUT, FailureKind.RATE_LIMITED):
        failure = scene.failure(running, kind)
        await scene.stores.tasks.commit(failure)
        assert await scene.get(running.id) == failure.after
        scene.clock.advance(10)
        [running] = await scene.claim()

    assert (running.timeouts, running.throttles, running.attempt) == (1, 1, 2)


async def test_a_governed_task_that_is_replayed_is_submitted_and_no_invariant_is_broken(scene: Scene) -> None:
    running = await scene.start()
    await scene.fail_for_good(running)
    failed = await scene.get(running.id)

    await scene.stores.tasks.commit(replay(failed, now=scene.clock.now(), required=("ours",)))

    assert await scene.status(running.id) == Status.SUBMITTED
    assert await scene.claim() == []
    assert await scene.stores.maintenance.check_invariants() == []


async def test_a_worker_that_lost_its_lease_cannot_finish(scene: Scene) -> None:
    late = await scene.start(worker="slow")
    await scene.let_lease_run_out()
    [current] = await scene.claim(worker="quick")

    with pytest.raises(StaleLease):
        await scene.succeed(late)
    with pytest.raises(StaleLease):
        await scene.fail(late)
    with pytest.raises(StaleLease):
        await scene.release(late)

    assert await scene.get(late.id) == current
    await scene.succeed(current)


async def test_a_worker_whose_task_stalled_can_finish_as_long_as_nobody_took_over(scene: Scene) -> None:
    """Its store was away for longer than the lease; the work is done, and no other run has begun."""
    late = await scene.start()
    await scene.let_lease_run_out()
    assert await scene.status(late.id) == Status.STALLED

    await scene.succeed(late)

    assert await scene.status(late.id) == Status.COMPLETED
    assert await scene.claim(worker="quick") == []


async def test_a_worker_whose_task_stalled_can_return_it_without_using_an_attempt(scene: Scene) -> None:
    late = await scene.start()
    await scene.let_lease_run_out()

    await scene.release(late)

    [again] = await scene.claim(worker="quick")
    assert (again.id, again.attempt) == (late.id, 1)
    with pytest.raises(StaleLease):
        await scene.succeed(late)


async def test_a_worker_whose_task_was_cancelled_cannot_finish(scene: Scene) -> None:
    late = await scene.start()
    await scene.cancel(late.id, "no longer wanted")

    with pytest.raises(StaleLease):
        await scene.succeed(late)

    assert (await scene.get(late.id)).reason == "no longer wanted"


async def test_a_lease_that_ran_out_unnoticed_still_counts(scene: Scene) -> None:
    running = await scene.start()
    scene.clock.advance(3600)

    await scene.succeed(running)

    assert await scene.status(running.id) == Status.COMPLETED


async def test_who_decided_on_an_old_version_is_told_to_read_again(scene: Scene) -> None:
    task = await scene.add()
    await scene.claim()

    with pytest.raises(StaleWrite) as refused:
        await scene.stores.tasks.commit(cancel(task, None, now=scene.clock.now()))

    assert not isinstance(refused.value, StaleLease)
    assert await scene.status(task.id) == Status.RUNNING


async def test_a_renewed_lease_wins_over_who_judged_it_lost(scene: Scene) -> None:
    running = await scene.start()
    scene.clock.advance(31)
    [judged] = (await scene.stores.sweeps.due(10)).expired
    assert scene.renew(running) == {}

    with pytest.raises(StaleWrite):
        await scene.stores.tasks.commit(lose_lease(judged, now=scene.clock.now()))

    assert await scene.status(running.id) == Status.RUNNING


async def test_a_task_that_is_gone_cannot_be_written(scene: Scene) -> None:
    running = await scene.start()
    await scene.cancel(running.id)
    await scene.stores.sweeps.prune([running.id])

    with pytest.raises(StaleLease):
        await scene.succeed(running)
    with pytest.raises(StaleWrite):
        await scene.stores.tasks.commit(cancel(running, None, now=scene.clock.now()))
    [answer] = await scene.stores.tasks.commit_each([scene.success(running)])

    assert isinstance(answer, StaleLease)


async def test_one_stale_change_keeps_all_of_its_commit_from_being_written(scene: Scene) -> None:
    first, second = await scene.add_many(2)
    await scene.cancel(second.id)
    seen = await scene.stores.events.last_seq()

    with pytest.raises(StaleWrite):
        await scene.stores.tasks.commit(*(cancel(task, None, now=scene.clock.now()) for task in (first, second)))

    assert await scene.status(first.id) == Status.PENDING
    assert await scene.stores.events.last_seq() == seen


async def test_a_commit_of_several_changes_writes_them_all(scene: Scene) -> None:
    tasks = await scene.add_many(3)

    await scene.stores.tasks.commit(*(cancel(task, None, now=scene.clock.now()) for task in tasks))

    assert await scene.counts() == {"cancelled": 3}


async def test_each_of_several_changes_has_its_own_answer(scene: Scene) -> None:
    await scene.add_many(3)
    fine, lost, also_fine = await scene.claim(3)
    await scene.cancel(lost.id)

    answers = await scene.stores.tasks.commit_each([scene.success(task) for task in (fine, lost, also_fine)])

    assert [type(answer) for answer in answers] == [type(None), StaleLease, type(None)]
    assert await scene.counts() == {"completed": 2, "cancelled": 1}


async def test_no_changes_need_no_answers(scene: Scene) -> None:
    await scene.stores.tasks.commit()

    assert await scene.stores.tasks.commit_each([]) == []


async def test_a_repeated_own_write_is_no_error_and_no_second_write(scene: Scene) -> None:
    await scene.add_many(3)
    one, two, three = await scene.claim(3)
    changes = [scene.success(one, "1"), scene.failure(two), scene.failure(three, FailureKind.UNRECOVERABLE)]
    assert await scene.stores.tasks.commit_each(changes) == [None] * 3
    seen = await scene.stores.events.last_seq()

    assert await scene.stores.tasks.commit_each(changes) == [None] * 3
    await scene.stores.tasks.commit(*changes)

    assert await scene.stores.events.last_seq() == seen
    assert (await scene.get(one.id)).result == raw("1")


async def test_a_change_given_twice_in_one_call_is_written_once(scene: Scene) -> None:
    running = await scene.start()
    success = scene.success(running)

    assert await scene.stores.tasks.commit_each([success, success]) == [None, None]
    assert (await scene.event_types(running.id)).count("task.succeeded") == 1


async def test_two_different_ends_of_one_run_in_one_call_write_the_first(scene: Scene) -> None:
    running = await scene.start()

    answers = await scene.stores.tasks.commit_each([scene.success(running), scene.failure(running)])

    assert [type(answer) for answer in answers] == [type(None), StaleLease]
    assert await scene.status(running.id) == Status.COMPLETED


async def test_two_changes_of_one_task_in_one_commit_are_refused(scene: Scene) -> None:
    task = await scene.add()
    stop = cancel(task, None, now=scene.clock.now())

    with pytest.raises(StaleWrite):
        await scene.stores.tasks.commit(stop, stop)

    assert await scene.status(task.id) == Status.PENDING


async def test_of_two_writers_at_once_one_wins(scene: Scene) -> None:
    tasks = await scene.add_many(20)
    stops = [cancel(task, who, now=scene.clock.now()) for task in tasks for who in ("ann", "bob")]

    answers = await asyncio.gather(*(scene.stores.tasks.commit(stop) for stop in stops), return_exceptions=True)

    assert sum(isinstance(answer, StaleWrite) for answer in answers) == 20
    assert sum(answer is None for answer in answers) == 20
    assert await scene.counts() == {"cancelled": 20}


async def test_a_finish_and_a_cancel_at_once_leave_one_end(scene: Scene) -> None:
    await scene.add_many(20)
    running = await scene.claim(20)
    now = scene.clock.now()
    changes = [c for task in running for c in (scene.success(task), cancel(task, None, now=now))]

    await asyncio.gather(*(scene.stores.tasks.commit(c) for c in changes), return_exceptions=True)

    ends = [kind for kind in await scene.event_types() if kind in ("task.succeeded", "task.cancelled")]
    assert len(ends) == 20


async def test_a_change_without_a_guard_is_written_whatever_the_record_is(scene: Scene) -> None:
    task = await scene.add()
    await scene.claim()
    stop = change(
        task,
        Verb.CANCEL,
        now=scene.clock.now(),
        guard=ChangePrecondition(),
        finished_at=scene.clock.now(),
        lease_until=None,
    )

    await scene.stores.tasks.commit(stop)

    assert await scene.status(task.id) == Status.CANCELLED


async def test_a_discarded_dead_letter_stays_on_record(scene: Scene) -> None:
    running = await scene.start()
    await scene.fail_for_good(running)
    failed = await scene.get(running.id)

    await scene.stores.tasks.commit(discard(failed, "known bug", now=scene.clock.now()))

    task: Task = await scene.get(running.id)
    assert task == structs.replace(
        failed, discarded=True, reason="known bug", version=failed.version + 1, updated_at=scene.clock.now()
    )
    assert await scene.counts() == {"failed": 1}
