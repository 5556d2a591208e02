"""Workers get work: the most urgent first, no task twice, nothing that may not start."""

import asyncio
import itertools

from ade.core.lifecycle import Status
from ade.core.records import Queue
from ade.ports import ClaimRequest, TaskQuery
from tests.conformance.backends import Backend
from tests.conformance.scene import LEASE_MS, NAMES, Scene, new_run_id


async def test_a_claimed_task_runs_with_a_lease(scene: Scene) -> None:
    added = await scene.add()
    scene.clock.advance(2)

    [task] = await scene.claim(worker="w7")

    assert task.id == added.id
    assert (task.status, task.worker_id, task.attempt, task.version) == (Status.RUNNING, "w7", 1, added.version + 1)
    assert task.lease_until == scene.clock.steady() + LEASE_MS
    assert task.started_at == scene.clock.now()
    assert await scene.get(task.id) == task


async def test_urgent_tasks_come_first_then_old_ones_across_queues_and_names(scene: Scene) -> None:
    wanted = []
    for priority, queue, name in itertools.product((5, 0, 9), ("a", "b"), ("send", "build")):
        wanted.append(await scene.add(name, queue=queue, priority=priority))
    wanted.sort(key=lambda task: task.priority)  # stable: age decides among equals

    assert await scene.run(5) + await scene.run(20) == [task.id for task in wanted]


async def test_a_large_claim_over_many_lanes_keeps_the_order(scene: Scene) -> None:
    tasks = [
        scene.task(name, queue=queue, priority=(index * 7) % 10)
        for index, (queue, name) in enumerate(itertools.product(("a", "b", "c") * 40, ("send", "build", "report")))
    ]
    await scene.add_all(*tasks)

    order = await scene.run(200) + await scene.run(200)

    assert order == [task.id for task in sorted(tasks, key=lambda task: task.priority)]


async def test_only_names_the_worker_has_are_handed_out(scene: Scene) -> None:
    await scene.add("build")
    send = await scene.add("send")

    assert await scene.run(10, names={"send"}) == [send.id]


async def test_only_queues_the_worker_asks_for_are_handed_out(scene: Scene) -> None:
    await scene.add(queue="a")
    b = await scene.add(queue="b")
    c = await scene.add(queue="c")

    assert await scene.run(10, queues=("b", "c", "d")) == [b.id, c.id]


async def test_a_worker_that_wants_nothing_gets_nothing(scene: Scene) -> None:
    await scene.add_many(3)
    await scene.add("build")

    assert await scene.claim(0) == []
    assert await scene.claim(10, names=set()) == []
    assert await scene.counts() == {"pending": 4}


async def test_no_task_goes_to_two_workers(scene: Scene) -> None:
    tasks = await scene.add_many(60)

    claims = await asyncio.gather(*(scene.claim(7, worker=f"w{n}") for n in range(20)))

    handed_out = [task.id for claim in claims for task in claim]
    assert sorted(handed_out) == sorted(task.id for task in tasks)
    assert len({task.run_id for claim in claims for task in claim}) == 60


async def test_a_delayed_task_waits_for_its_time(scene: Scene) -> None:
    later = await scene.add(run_after=scene.clock.now() + 10_000)
    await scene.add(run_after=scene.clock.now() + 99_000)

    assert await scene.claim() == []
    assert await scene.stores.sweeps.next_due() == later.run_after
    scene.clock.advance(9.999)
    assert await scene.claim() == []
    scene.clock.advance(0.001)
    assert await scene.run() == [later.id]


async def test_nothing_is_due_when_nothing_is_delayed(scene: Scene) -> None:
    await scene.add()

    assert await scene.stores.sweeps.next_due() is None


async def test_a_task_that_was_delayed_keeps_its_age(scene: Scene) -> None:
    early = await scene.add(run_after=scene.clock.now() + 1_000)
    late = await scene.add()
    scene.clock.advance(1)

    assert await scene.run(2) == [early.id, late.id]


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(scene: Scene) -> None:
    paused = await scene.add(queue="a")
    other = await scene.add(queue="b")
    await scene.stores.queues.configure(Queue(name="a", paused=True))
    assert await scene.run(5) == [other.id]

    await scene.stores.queues.configure(Queue(name="a", paused=False))

    assert await scene.run(5) == [paused.id]


async def test_an_attempt_counts_from_the_claim_on(scene: Scene) -> None:
    """So a task that kills its worker runs out of attempts as well."""
    task = await scene.add(max_attempts=2)
    attempts = []
    for _ in range(2):
        [running] = await scene.claim()
        attempts.append(running.attempt)
        await scene.let_lease_run_out()

    assert attempts == [1, 2]
    assert await scene.claim() == []
    assert await scene.status(task.id) == Status.FAILED


async def test_a_claim_repeated_after_an_unknown_outcome_gives_the_same_tasks(scene: Scene) -> None:
    await scene.add_many(3)
    await scene.add(priority=0)
    request = ClaimRequest(worker_id="w1", run_ids=[new_run_id() for _ in range(3)], names=NAMES, lease_ms=LEASE_MS)

    first = await scene.stores.tasks.claim(request)
    again = await scene.stores.tasks.claim(request)

    assert again == first
    assert await scene.counts() == {"running": 3, "pending": 1}


async def test_claims_are_on_record(scene: Scene) -> None:
    task = await scene.start(worker="w3")

    event = (await scene.stores.events.read(0, 10, task_id=task.id))[-1]

    assert event.type == "task.claimed"
    assert event.payload == {"attempt": 1, "run_id": task.run_id, "worker": "w3"}


async def test_one_unreadable_record_is_set_aside_and_the_others_are_handed_out(scene: Scene, backend: Backend) -> None:
    before, bad, after = await scene.add_many(3)
    await backend.damage(scene.stores, bad.id)

    assert await scene.run(3) == [before.id, after.id]

    aside = await scene.get(bad.id)
    assert aside.status is Status.FAILED
    assert aside.error is not None
    assert aside.error.type == "UnreadableRecord"
    assert (await scene.event_types(bad.id))[-2:] == ["task.failed", "task.dlq"]
    assert await scene.counts() == {"completed": 2, "failed": 1}


async def test_an_unreadable_record_that_runs_out_of_its_lease_does_not_keep_the_sweep_from_the_others(
    scene: Scene, backend: Backend
) -> None:
    bad, fine = await scene.add_many(2)
    await scene.claim(2)
    await backend.damage(scene.stores, bad.id)

    await scene.let_lease_run_out()

    assert await scene.statuses(bad, fine) == [Status.STALLED, Status.STALLED]
    assert await scene.run(2) == [fine.id]
    assert await scene.status(bad.id) == Status.FAILED


async def test_an_unreadable_record_does_not_spoil_the_list_it_is_on(scene: Scene, backend: Backend) -> None:
    first, bad, last = await scene.add_many(3)
    await backend.damage(scene.stores, bad.id)

    page = await scene.stores.tasks.find(TaskQuery(oldest_first=True))
    found = await scene.stores.tasks.find(TaskQuery(text="send"))
    none = await scene.stores.tasks.find(TaskQuery(text="send", tag="x", author_id="ann", discarded=False))

    assert [task.id for task in page.tasks] == [first.id, bad.id, last.id]
    assert {first.id, last.id} <= {task.id for task in found.tasks}
    assert none.tasks == []
    [shown] = await scene.stores.tasks.get([bad.id])
    assert shown is not None
    assert (shown.name, shown.status) == ("send", Status.PENDING)
    assert shown.error is not None
    assert shown.error.type == "UnreadableRecord"
    await scene.claim(3)


async def test_what_waits_for_an_unreadable_record_waits_in_vain(scene: Scene, backend: Backend) -> None:
    bad = await scene.add()
    waiting = await scene.add(depends_on=(bad.id,))
    await backend.damage(scene.stores, bad.id)

    assert await scene.claim(2) == []

    [(task, failed)] = (await scene.stores.sweeps.ripe(10)).broken
    assert (task.id, failed) == (waiting.id, (bad.id,))


async def test_an_unreadable_record_frees_its_key(scene: Scene, backend: Backend) -> None:
    await scene.define("send", concurrency_per_key=1)
    bad, fine = await scene.add_many(2, concurrency_key="ann")
    await backend.damage(scene.stores, bad.id)

    assert await scene.claim(2) == []
    assert await scene.run(2) == [fine.id]


async def test_a_key_of_an_unreadable_record_is_still_known(scene: Scene, backend: Backend) -> None:
    bad = await scene.add(idempotency_key="k")
    await backend.damage(scene.stores, bad.id)

    assert (await scene.add(idempotency_key="k")).id == bad.id
    await scene.claim()


async def test_an_unreadable_record_that_is_final_can_be_pruned(scene: Scene, backend: Backend) -> None:
    running = await scene.start()
    await scene.succeed(running)
    await backend.damage(scene.stores, running.id)
    scene.clock.advance(1)

    old = await scene.stores.sweeps.finished_before(scene.clock.now(), 10)

    assert await scene.stores.sweeps.prune([task.id for task in old]) == 1
