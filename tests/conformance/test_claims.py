"""Workers get work: the most urgent first, no task twice, nothing that may not start."""

import asyncio
import itertools

from ade import Status
from tests.conformance.scene import LEASE_MS, NAMES, Scene, new_run_id
from tests.domain import ClaimRequest, Queue


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


async def test_tasks_that_a_worker_does_not_serve_do_not_hide_those_behind_them(scene: Scene) -> None:
    await scene.add_many(5, "build")
    mine = await scene.add("send")

    assert [task.id for task in await scene.claim(1, names={"send"})] == [mine.id]


async def test_a_whole_backlog_of_what_nobody_serves_hides_nothing(scene: Scene) -> None:
    await scene.add_many(2500, "build")
    mine = await scene.add("send")

    assert [task.id for task in await scene.claim(1, names={"send"})] == [mine.id]
