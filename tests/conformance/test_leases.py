"""Leases: a worker that goes silent loses its tasks, one that is heard of keeps them."""

import pytest

from ade import Status
from ade.errors import StaleLease
from ade.worker.sweep import take_over
from tests.conformance.scene import LEASE_MS, NAMES, Scene, new_run_id
from tests.domain import ClaimRequest, lose_lease


async def test_a_lease_that_ran_out_is_up_for_a_decision(scene: Scene) -> None:
    running = await scene.start()
    scene.clock.advance(LEASE_MS / 1000)
    assert (await scene.stores.sweeps.due(10)).expired == []

    scene.clock.advance(0.001)

    assert (await scene.stores.sweeps.due(10)).expired == [running]


async def test_the_longest_silent_come_first_and_no_more_than_asked_for(scene: Scene) -> None:
    tasks = []
    for _ in range(3):
        tasks.append(await scene.start())
        scene.clock.advance(1)
    scene.clock.advance(60)

    expired = (await scene.stores.sweeps.due(2)).expired

    assert [task.id for task in expired] == [tasks[0].id, tasks[1].id]


async def test_a_stalled_task_is_taken_over_and_the_takeover_is_on_record(scene: Scene) -> None:
    first = await scene.start(worker="silent")
    await scene.let_lease_run_out()
    assert await scene.status(first.id) == Status.STALLED

    [second] = await scene.claim(worker="heir")

    assert (second.id, second.attempt, second.worker_id) == (first.id, 2, "heir")
    assert second.run_id != first.run_id
    events = await scene.stores.events.read(0, 100, task_id=first.id)
    assert [event.type for event in events] == [
        "task.created",
        "task.claimed",
        "task.stalled",
        "task.claimed",
        "task.reclaimed",
    ]
    reclaimed = events[-1].payload
    assert (reclaimed["previous_worker"], reclaimed["new_worker"]) == ("silent", "heir")


async def test_a_claim_after_a_retry_is_no_takeover(scene: Scene) -> None:
    await scene.fail(await scene.start())
    scene.clock.advance(60)
    await scene.claim()

    assert "task.reclaimed" not in await scene.event_types()


async def test_a_task_whose_attempts_are_used_up_ends_with_its_worker(scene: Scene) -> None:
    running = await scene.start(max_attempts=1)

    await scene.let_lease_run_out()

    failed = await scene.get(running.id)
    assert failed.status is Status.FAILED
    assert failed.error is not None
    assert failed.error.kind == "worker_died"


async def test_a_heartbeat_extends_the_lease(scene: Scene) -> None:
    running = await scene.start()
    scene.clock.advance(20)

    assert scene.renew(running) == {}

    renewed = await scene.get(running.id)
    assert renewed.lease_until == scene.clock.steady() + LEASE_MS
    assert renewed.version == running.version
    scene.clock.advance(29)
    assert (await scene.stores.sweeps.due(10)).expired == []


async def test_a_heartbeat_never_shortens_a_lease(scene: Scene) -> None:
    await scene.add()
    [running] = await scene.claim(lease_ms=600_000)

    scene.renew(running, lease_ms=1_000)

    assert (await scene.get(running.id)).lease_until == running.lease_until


async def test_a_lease_that_ran_out_unnoticed_is_renewed(scene: Scene) -> None:
    running = await scene.start()
    scene.clock.advance(3600)

    assert scene.renew(running) == {}
    assert (await scene.stores.sweeps.due(10)).expired == []


async def test_a_heartbeat_revives_nothing(scene: Scene) -> None:
    stalled, cancelled, completed = [await scene.start() for _ in range(3)]
    scene.clock.advance(31)
    await scene.stores.tasks.commit(lose_lease(stalled, now=scene.clock.now()))
    await scene.cancel(cancelled.id)
    await scene.succeed(completed)

    gone = scene.renew(stalled, cancelled, completed)

    assert gone == {
        stalled.id: Status.STALLED,
        cancelled.id: Status.CANCELLED,
        completed.id: Status.COMPLETED,
    }
    assert await scene.counts() == {"stalled": 1, "cancelled": 1, "completed": 1}


async def test_a_worker_learns_that_another_has_its_task(scene: Scene) -> None:
    late = await scene.start(worker="slow")
    await scene.let_lease_run_out()
    [current] = await scene.claim(worker="quick")

    assert scene.renew(late, worker="slow") == {late.id: Status.RUNNING}
    assert await scene.get(late.id) == current
    with pytest.raises(StaleLease):
        await scene.succeed(late)


async def test_a_worker_learns_that_its_task_is_gone_altogether(scene: Scene) -> None:
    running = await scene.start()
    await scene.cancel(running.id)
    await scene.stores.sweeps.prune([running.id])

    assert scene.renew(running) == {running.id: None}


async def test_a_worker_cannot_renew_the_lease_of_another(scene: Scene) -> None:
    running = await scene.start(worker="w1")
    scene.clock.advance(10)

    assert scene.renew(running, worker="w2") == {running.id: Status.RUNNING}
    assert (await scene.get(running.id)).lease_until == running.lease_until


async def test_a_worker_renews_only_the_runs_it_names(scene: Scene) -> None:
    mine = await scene.start()
    forgotten = await scene.start()
    scene.clock.advance(20)
    scene.renew(mine)
    scene.clock.advance(11)

    assert [task.id for task in (await scene.stores.sweeps.due(10)).expired] == [forgotten.id]


async def test_a_heartbeat_without_runs_keeps_the_worker_known(scene: Scene) -> None:
    assert scene.renew(worker="idle") == {}

    [worker] = await scene.stores.workers.list_workers()
    assert (worker.id, worker.heartbeat_until) == ("idle", scene.clock.steady() + LEASE_MS)


async def test_a_wall_clock_that_jumps_moves_no_lease(scene: Scene) -> None:
    running = await scene.start()
    for jump in (+3600, -86_400):
        scene.clock.jump_wall(jump)
        assert (await scene.stores.sweeps.due(10)).expired == []
        scene.renew(running)

    assert (await scene.get(running.id)).lease_until == scene.clock.steady() + LEASE_MS


async def test_a_deadline_that_passed_is_up_for_a_decision(scene: Scene) -> None:
    late = await scene.add(deadline=scene.clock.now() + 1_000)
    stalled = await scene.start(deadline=scene.clock.now() + 60_000, priority=0)
    await scene.add(deadline=scene.clock.now() + 999_000)
    assert (await scene.stores.sweeps.due(10)).overdue == []

    await scene.let_lease_run_out()
    scene.clock.advance(60)

    assert await scene.status(late.id) == Status.FAILED
    assert [task.id for task in (await scene.stores.sweeps.due(10)).overdue] == [stalled.id]


async def test_a_running_task_is_not_overdue(scene: Scene) -> None:
    await scene.start(deadline=scene.clock.now() + 1_000)
    scene.clock.advance(5)

    assert (await scene.stores.sweeps.due(10)).overdue == []


async def test_a_silent_worker_is_forgotten_once_it_holds_nothing(scene: Scene) -> None:
    running = await scene.start(worker="w1")
    scene.renew(running, worker="w1")
    scene.renew(worker="w2")
    scene.clock.advance(3600)
    scene.renew(worker="w3")

    assert await scene.stores.workers.forget_silent() == ["w2"]
    await scene.sweep()
    assert await scene.stores.workers.forget_silent() == ["w1"]
    assert [worker.id for worker in await scene.stores.workers.list_workers()] == ["w3"]


async def test_a_worker_that_was_silent_only_for_a_while_stays_known(scene: Scene) -> None:
    scene.renew(worker="w1")
    scene.clock.advance(LEASE_MS / 1000 + 5)

    assert await scene.stores.workers.forget_silent() == []


async def test_a_worker_that_says_goodbye_is_gone(scene: Scene) -> None:
    await scene.stores.workers.register(scene.worker("w1"), [], ttl_ms=LEASE_MS)
    await scene.stores.workers.deregister("w1")

    assert await scene.stores.workers.list_workers() == []


async def test_definitions_are_known_by_name_and_the_newest_counts(scene: Scene) -> None:
    await scene.define("send", concurrency=1)
    await scene.define("build", schema={"type": "object"})
    await scene.define("send", concurrency=2)

    definitions = await scene.stores.workers.definitions()

    assert [(known.name, known.concurrency) for known in definitions] == [("build", None), ("send", 2)]
    assert definitions[0].schema == {"type": "object"}


async def test_a_stalled_task_that_was_once_delayed_is_claimable_whatever_the_wall_clock_says(scene: Scene) -> None:
    await scene.add(run_after=scene.clock.now() + 60_000)
    scene.clock.advance(61)
    [running] = await scene.claim()
    scene.clock.jump_wall(-3_600)
    await scene.let_lease_run_out()
    await scene.sweep()
    assert [task.id for task in await scene.claim()] == [running.id]


async def test_a_claim_in_progress_is_renewed_by_its_run_ids_alone(scene: Scene) -> None:
    """The worker has not read the response, so it knows no task; an ID that got none is not lost."""
    for _ in range(2):
        await scene.add()
    run_ids = [new_run_id() for _ in range(3)]
    request = ClaimRequest(worker_id="w1", run_ids=run_ids, names=frozenset(NAMES), lease_ms=LEASE_MS)
    claimed = await scene.stores.tasks.claim(request)
    held = await scene.start()
    scene.clock.advance(LEASE_MS / 1000 - 1)

    renewal = scene.stores.workers.renew(
        scene.worker(), {str(held.run_id): held.id}, lease_ms=LEASE_MS, claiming=run_ids
    )

    assert renewal.gone == {}
    assert len(claimed) == 2
    scene.clock.advance(LEASE_MS / 1000 - 1)
    assert (await scene.stores.sweeps.due(10)).expired == []


async def test_another_workers_claim_is_not_renewed(scene: Scene) -> None:
    running = await scene.start(worker="w1")
    scene.clock.advance(LEASE_MS / 1000 - 1)

    scene.stores.workers.renew(scene.worker("w2"), {}, lease_ms=LEASE_MS, claiming=[str(running.run_id)])

    scene.clock.advance(2)
    assert [task.id for task in (await scene.stores.sweeps.due(10)).expired] == [running.id]


async def test_the_tasks_of_a_dead_worker_are_returned_with_an_attempt_only_if_they_had_started(scene: Scene) -> None:
    started, last, unstarted = [await scene.start(max_attempts=attempts) for attempts in (2, 1, 1)]
    other = await scene.start(worker="w2")
    begun = {started.run_id, last.run_id}

    assert await take_over(scene.stores, scene.worker(), lambda run_id: run_id in begun) == 3

    found = [await scene.get(task.id) for task in (started, last, unstarted)]
    assert [(task.status, task.attempt) for task in found] == [
        (Status.STALLED, 1),
        (Status.FAILED, 1),
        (Status.PENDING, 0),
    ]
    assert await scene.get(other.id) == other
    released = [event for event in await scene.stores.events.read(0, 100) if event.type == "task.released"]
    assert [(event.task_id, event.payload["has_begun"]) for event in released] == [(unstarted.id, False)]
