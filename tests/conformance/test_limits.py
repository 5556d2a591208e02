"""Limits: how many of a name run at once, how many start in a while, how many share a key."""

import asyncio

from ade import Task
from tests.conformance.scene import Scene


async def test_a_name_runs_no_more_often_at_once_than_its_limit(scene: Scene) -> None:
    await scene.define("send", concurrency=2)
    await scene.add_many(5)

    first = await scene.claim(5)
    assert len(first) == 2
    assert await scene.claim(5, worker="w2") == []
    await scene.succeed(first[0])
    assert len(await scene.claim(5, worker="w2")) == 1


async def test_a_limited_name_does_not_hold_up_the_others(scene: Scene) -> None:
    await scene.define("send", concurrency=1)
    await scene.add_many(3, priority=0)
    await scene.add_many(3, "build", priority=9)

    assert [task.name for task in await scene.claim(10)] == ["send", "build", "build", "build"]


async def test_a_limit_counts_over_all_queues(scene: Scene) -> None:
    await scene.define("send", concurrency=1)
    await scene.add(queue="a")
    await scene.add(queue="b")

    assert len(await scene.claim(5)) == 1


async def test_workers_at_once_never_pass_a_limit(scene: Scene) -> None:
    await scene.define("send", concurrency=3)
    await scene.add_many(20)

    claims = await asyncio.gather(*(scene.claim(2, worker=f"w{n}") for n in range(8)))

    assert sum(len(claim) for claim in claims) == 3


async def test_a_rate_allows_a_burst_and_then_its_pace(scene: Scene) -> None:
    await scene.define("send", rate_count=3, rate_period_ms=30_000)
    await scene.add_many(10)

    assert len(await scene.run(10)) == 3
    scene.clock.advance(9.9)
    assert await scene.run(10) == []
    scene.clock.advance(0.2)
    assert len(await scene.run(10)) == 1
    scene.clock.advance(60)
    assert len(await scene.run(10)) == 3


async def test_the_state_of_a_rate_can_be_read(scene: Scene) -> None:
    await scene.define("send", rate_count=3, rate_period_ms=30_000)
    assert await scene.stores.queues.rate_full_at("send") == 0
    assert await scene.stores.queues.rate_full_at("nobody") == 0
    await scene.add_many(2)
    await scene.run(2)

    assert await scene.stores.queues.rate_full_at("send") == (scene.clock.now() + 20_000) * 1000


async def test_a_worker_that_registers_again_does_not_refill_a_rate(scene: Scene) -> None:
    await scene.define("send", rate_count=1, rate_period_ms=30_000)
    await scene.add_many(3)
    await scene.run(1)

    await scene.define("send", rate_count=1, rate_period_ms=30_000)

    assert await scene.run(3) == []


async def _one_at_a_time(scene: Scene, *, also: int = 2) -> tuple[Task, list[Task]]:
    """A running task, and others of its concurrency key that had to wait."""
    await scene.define("send", concurrency_per_key=1)
    tasks = await scene.add_many(1 + also, concurrency_key="ann")
    [running] = await scene.claim(10)
    assert running.id == tasks[0].id
    assert await scene.claim(10, worker="w2") == []
    return running, tasks[1:]


async def test_a_busy_key_keeps_back_its_own_tasks_and_no_others(scene: Scene) -> None:
    _, _ = await _one_at_a_time(scene)
    other_key = await scene.add(concurrency_key="bob")
    no_key = await scene.add()

    assert await scene.run(10) == [other_key.id, no_key.id]
    [first] = await scene.stores.queues.running_by_key("send", "ann")
    assert await scene.status(first) == "running"


async def test_when_a_run_ends_the_next_of_its_key_may_start(scene: Scene) -> None:
    running, (second, third) = await _one_at_a_time(scene)

    await scene.succeed(running)

    assert await scene.run(10) == [second.id]
    assert await scene.run(10) == [third.id]


async def test_when_a_run_is_cancelled_the_next_of_its_key_may_start(scene: Scene) -> None:
    running, (second, _) = await _one_at_a_time(scene)

    await scene.cancel(running.id)

    assert await scene.run(10) == [second.id]


async def test_when_a_run_fails_and_waits_for_its_retry_the_next_of_its_key_may_start(scene: Scene) -> None:
    running, (second, _) = await _one_at_a_time(scene)

    await scene.fail(running)

    assert await scene.run(10) == [second.id]


async def test_when_a_worker_goes_silent_its_task_is_the_next_of_its_key(scene: Scene) -> None:
    running, (second, _) = await _one_at_a_time(scene)

    await scene.let_lease_run_out()

    assert await scene.run(10) == [running.id]
    assert await scene.run(10) == [second.id]


async def test_a_released_run_goes_before_the_others_of_its_key(scene: Scene) -> None:
    running, (second, _) = await _one_at_a_time(scene)

    await scene.release(running)

    assert await scene.run(10) == [running.id]
    assert await scene.run(10) == [second.id]


async def test_a_next_in_line_that_is_cancelled_lets_the_one_behind_it_go(scene: Scene) -> None:
    running, (second, third) = await _one_at_a_time(scene)
    await scene.succeed(running)

    await scene.cancel(second.id)

    assert await scene.run(10) == [third.id]


async def test_a_next_in_line_that_is_cancelled_frees_its_share_of_a_wider_key(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=2)
    tasks = await scene.add_many(4, concurrency_key="ann")
    first, _ = await scene.claim(10)
    await scene.succeed(first)

    await scene.cancel(tasks[2].id)

    assert await scene.run(10) == [tasks[3].id]


async def test_a_next_in_line_whose_queue_nobody_serves_holds_up_no_other_queue(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=2)
    await scene.add_many(2, queue="served", concurrency_key="ann")
    await scene.add(queue="unserved", concurrency_key="ann", priority=0)
    served = await scene.add(queue="served", concurrency_key="ann")
    running = await scene.claim(10, queues=("served",))
    assert await scene.claim(10) == []  # both wait for the key now

    await scene.succeed(running[0])

    assert await scene.run(10, queues=("served",)) == [served.id]


async def test_a_key_of_two_lets_two_run(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=2)
    await scene.add_many(5, concurrency_key="ann")

    first = await scene.claim(10)
    assert len(first) == 2
    for task in first:
        await scene.succeed(task)
    assert len(await scene.claim(10)) == 2


async def test_an_urgent_task_goes_first_when_its_key_is_free_again(scene: Scene) -> None:
    running, (second, _) = await _one_at_a_time(scene)
    urgent = await scene.add(concurrency_key="ann", priority=0)
    assert await scene.claim(10) == []

    await scene.succeed(running)

    assert await scene.run(10) == [urgent.id]
    assert await scene.run(10) == [second.id]


async def test_a_wider_limit_takes_effect_at_once(scene: Scene) -> None:
    _, waiting = await _one_at_a_time(scene)

    await scene.define("send", concurrency_per_key=3)

    assert [task.id for task in await scene.claim(10)] == [task.id for task in waiting]


async def test_a_limit_that_is_gone_takes_effect_at_once(scene: Scene) -> None:
    _, waiting = await _one_at_a_time(scene, also=5)

    await scene.define("send")

    assert [task.id for task in await scene.claim(10)] == [task.id for task in waiting]


async def test_a_key_without_a_limit_limits_nothing(scene: Scene) -> None:
    await scene.add_many(3, concurrency_key="ann")

    assert len(await scene.claim(10)) == 3


async def test_keys_and_a_limit_by_name_work_together(scene: Scene) -> None:
    await scene.define("send", concurrency=2, concurrency_per_key=1)
    ann1, ann2 = await scene.add_many(2, concurrency_key="ann")
    bob1, bob2 = await scene.add_many(2, concurrency_key="bob")

    first = await scene.claim(10)
    assert [task.id for task in first] == [ann1.id, bob1.id]
    await scene.succeed(first[1])
    assert await scene.run(10) == [bob2.id]
    await scene.succeed(first[0])
    assert await scene.run(10) == [ann2.id]


async def test_hundreds_of_tasks_behind_one_busy_key_hide_nothing(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=1)
    await scene.add_many(300, concurrency_key="ann", priority=0)
    free = await scene.add_many(3, priority=9)

    claimed = await scene.claim(4)

    assert [task.id for task in claimed[1:]] == [task.id for task in free]


async def test_a_wall_clock_that_is_set_back_stops_no_rate(scene: Scene) -> None:
    await scene.define(rate_count=5, rate_period_ms=1_000)
    await scene.add_many(20)
    assert len(await scene.claim(20)) == 5
    scene.clock.jump_wall(-86_400)
    scene.clock.advance(1)
    assert len(await scene.claim(20)) == 5


async def test_tasks_kept_back_by_a_limit_do_not_hide_those_behind_them(scene: Scene) -> None:
    await scene.define("build", concurrency=1)
    await scene.start("build")
    await scene.add_many(5, "build")
    mine = await scene.add("send")

    assert [task.id for task in await scene.claim(1)] == [mine.id]


async def test_what_follows_a_task_kept_back_goes_before_younger_ones_of_other_queues(scene: Scene) -> None:
    await scene.define("build", concurrency=1)
    await scene.start("build", queue="a")
    await scene.add("build", queue="a")
    older = await scene.add("send", queue="a")
    younger = await scene.add("send", queue="b")

    assert [task.id for task in await scene.claim(1)] == [older.id]
    assert [task.id for task in await scene.claim(1)] == [younger.id]


async def test_what_follows_a_task_with_a_busy_key_goes_before_younger_ones_that_came_back(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=1)
    await scene.start("send", concurrency_key="ann")
    soon = scene.clock.now() + 1000
    await scene.add_many(3, "send", concurrency_key="ann", run_after=soon)
    older = await scene.add("send", run_after=soon)
    younger = await scene.add("build", run_after=soon)
    scene.clock.advance(2)

    assert [task.id for task in await scene.claim(1)] == [older.id]
    assert [task.id for task in await scene.claim(1)] == [younger.id]
