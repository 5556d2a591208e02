"""What can still be done with a task: try again later, hand back, stop, play again."""

from ade import Status
from ade.errors import StaleWrite
from ade.failures import FailureKind
from ade.tasks.decisions import break_chain
from tests.conformance.scene import Scene, raw
from tests.domain import AfterFailure


async def test_a_failed_attempt_waits_longer_each_time(scene: Scene) -> None:
    running = await scene.start(max_attempts=4)
    for seconds in (1, 2, 4):
        await scene.fail(running)
        scene.clock.advance(seconds - 0.001)
        assert await scene.claim() == []
        scene.clock.advance(0.001)
        [running] = await scene.claim()

    await scene.fail(running)

    assert await scene.status(running.id) == Status.FAILED
    assert (await scene.event_types(running.id))[-2:] == ["task.failed", "task.dlq"]


async def test_a_failure_that_must_not_be_repeated_ends_the_task_at_once(scene: Scene) -> None:
    running = await scene.start(max_attempts=9)

    await scene.fail_for_good(running)

    assert await scene.status(running.id) == Status.FAILED


async def test_a_rate_limited_run_uses_up_no_attempt(scene: Scene) -> None:
    running = await scene.start(max_attempts=1)
    for _ in range(5):
        change = scene.failure(running, FailureKind.RATE_LIMITED, retry_after_ms=60_000)
        await scene.stores.tasks.commit(change)
        scene.clock.advance(59.9)
        assert await scene.claim() == []
        scene.clock.advance(0.1)
        [running] = await scene.claim()
        assert running.attempt == 1

    await scene.succeed(running)


async def test_a_released_task_is_handed_out_again_at_once_and_at_no_cost(scene: Scene) -> None:
    running = await scene.start(max_attempts=1)

    await scene.release(running)

    [again] = await scene.claim(worker="w2")
    assert (again.id, again.attempt) == (running.id, 1)


async def test_an_alarm_goes_with_the_failure_that_asks_for_it(scene: Scene) -> None:
    running = await scene.start()

    await scene.fail(running, FailureKind.OUT_OF_MEMORY)

    assert (await scene.event_types(running.id))[-3:] == ["task.failed", "task.dlq", "alert"]


async def test_a_task_can_be_cancelled_in_every_unfinished_status(scene: Scene) -> None:
    pending = await scene.add(run_after=scene.clock.now() + 999_000)
    draft = await scene.add(status=Status.DRAFT)
    stalled = await scene.start()
    await scene.let_lease_run_out()
    running = await scene.add(priority=0)
    await scene.claim()

    for task in (pending, draft, stalled, running):
        await scene.cancel(task.id, "enough")

    assert await scene.counts() == {"cancelled": 4}
    assert await scene.claim(10) == []
    assert (await scene.get(running.id)).finished_at == scene.clock.now()


async def test_a_replayed_task_starts_afresh(scene: Scene) -> None:
    running = await scene.start(max_attempts=1)
    await scene.fail(running)

    await scene.replay(running.id, raw('{"n":2}'))

    task = await scene.get(running.id)
    assert (task.status, task.generation, task.attempt, task.error) == (Status.PENDING, 2, 0, None)
    assert task.arguments() == {"n": 2}
    assert task.finished_at is None
    assert await scene.counts() == {"pending": 1}
    [again] = await scene.claim()
    assert (again.attempt, again.generation) == (1, 2)
    await scene.succeed(again, '"at last"')
    assert (await scene.get(running.id)).result == raw('"at last"')


async def test_a_run_of_an_earlier_generation_cannot_finish_a_later_one(scene: Scene) -> None:
    old = await scene.start(max_attempts=1)
    await scene.let_lease_run_out()
    await scene.replay(old.id)
    [current] = await scene.claim()

    [answer] = await scene.stores.tasks.commit_each([scene.success(old)])

    assert answer is not None
    assert await scene.get(old.id) == current


async def test_a_task_may_fail_and_be_replayed_again_and_again(scene: Scene) -> None:
    running = await scene.start(max_attempts=1)
    for generation in range(2, 6):
        await scene.fail(running)
        await scene.replay(running.id)
        [running] = await scene.claim()
        assert running.generation == generation

    assert (await scene.event_types(running.id)).count("task.failed") == 4


async def test_a_replayed_task_with_a_busy_key_waits_its_turn(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=1)
    first = await scene.start(concurrency_key="ann")
    await scene.fail_for_good(first)
    second = await scene.start(concurrency_key="ann")

    await scene.replay(first.id)

    assert await scene.claim(10) == []
    await scene.succeed(second)
    assert await scene.run(10) == [first.id]


async def test_a_replayed_task_waits_again_for_what_runs_again_too(scene: Scene) -> None:
    first = await scene.add(max_attempts=1)
    second = await scene.add(depends_on=(first.id,), after_failure=AfterFailure.FAIL)
    [running] = await scene.claim()
    await scene.fail_for_good(running)
    await scene.sweep()
    assert await scene.statuses(first, second) == ["failed", "failed"]

    await scene.replay(first.id)
    await scene.replay(second.id)
    [again] = await scene.claim(10)
    assert again.id == first.id
    await scene.succeed(again)
    [then] = await scene.claim(10)
    assert then.id == second.id


async def test_a_replayed_task_runs_without_what_stays_failed(scene: Scene) -> None:
    first = await scene.add(max_attempts=1)
    second = await scene.add(depends_on=(first.id,), after_failure=AfterFailure.FAIL)
    [running] = await scene.claim()
    await scene.fail_for_good(running)
    await scene.sweep()
    await scene.replay(second.id)
    assert [task.id for task in await scene.claim(10)] == [second.id]


async def test_a_sweep_that_read_before_the_replay_does_not_cancel_who_may_hope_again(scene: Scene) -> None:
    first = await scene.add(max_attempts=1)
    second = await scene.add(depends_on=(first.id,))
    [running] = await scene.claim()
    await scene.fail_for_good(running)
    [(broken, failed)] = (await scene.stores.sweeps.due(10)).broken
    await scene.replay(first.id)
    late = break_chain(broken, failed_ids=failed, now=scene.clock.now())
    [answer] = await scene.stores.tasks.commit_each([late])
    assert isinstance(answer, StaleWrite)
    assert await scene.status(second.id) == "pending"
