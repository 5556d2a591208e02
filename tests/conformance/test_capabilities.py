"""Tasks that ask for capabilities, on every store: who has all of them gets the task, and nobody else comes upon it."""

import asyncio

import pytest
from msgspec import structs

from ade import Status, Task
from ade.tasks.decisions import edit, requeue, settle
from ade.tasks.outcomes import Deferred
from tests.conformance.scene import LEASE_MS, MIDDLE, NAMES, Scene, new_run_id
from tests.domain import ClaimRequest, Queue

GPU, BOTH = ("gpu",), ("gpu", "net")


@pytest.fixture(autouse=True)
async def nothing_is_broken_in_the_end(scene: Scene) -> object:
    yield
    assert await scene.stores.maintenance.check_invariants() == []


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


# who gets what


@pytest.mark.parametrize(
    ("can", "gets"), [((), 1), (("net",), 1), (GPU, 2), (BOTH, 3), (("gpu", "net", "tpu"), 3), (("gpu2", "g"), 1)]
)
async def test_only_who_has_all_that_a_task_needs_gets_it(scene: Scene, can: tuple[str, ...], gets: int) -> None:
    tasks = [await scene.add(), await scene.add(needs=GPU), await scene.add(needs=BOTH)]

    claimed = await scene.claim(5, can=can)

    assert ids(claimed) == ids(tasks[:gets])
    assert [task.needs for task in claimed] == [(), GPU, BOTH][:gets]


async def test_what_a_task_needs_is_kept_and_shown(scene: Scene) -> None:
    task = await scene.add(needs=("net", "gpu", "net"))

    assert task.needs == BOTH
    assert (await scene.get(task.id)).needs == BOTH


async def test_priority_and_age_hold_over_all_that_a_worker_can_do(scene: Scene) -> None:
    tasks = [
        await scene.add(priority=priority, needs=needs)
        for priority, needs in [(5, GPU), (5, ()), (1, ()), (1, BOTH), (5, BOTH), (5, ()), (0, GPU)]
    ]
    expected = [task.id for task in sorted(tasks, key=lambda task: task.priority)]

    assert [task_id for _ in tasks for task_id in await scene.run(can=BOTH)] == expected


async def test_a_claim_of_many_brings_both_kinds_in_order(scene: Scene) -> None:
    tasks = [await scene.add("send" if number % 3 else "build", needs=GPU if number % 2 else ()) for number in range(9)]

    assert ids(await scene.claim(20, can=GPU)) == ids(tasks)


async def test_many_that_nobody_can_do_hold_up_nothing(scene: Scene) -> None:
    waiting = await scene.add_many(300, needs=GPU)
    others = await scene.add_many(3)

    assert ids(await scene.claim(10)) == ids(others)
    assert await scene.claim(10, can=("net",)) == []
    assert ids(await scene.claim(10, can=GPU)) == ids(waiting[:10])
    assert await scene.counts() == {"running": 13, "pending": 290}


async def test_queues_and_names_are_respected_too(scene: Scene) -> None:
    here = await scene.add(needs=GPU, queue="here")
    await scene.add(needs=GPU, queue="there")
    await scene.add("report", needs=GPU, queue="here")

    assert ids(await scene.claim(5, can=GPU, queues=("here",), names=["send"])) == [here.id]


async def test_no_task_goes_to_two_callers(scene: Scene) -> None:
    tasks = await scene.add_many(30, needs=GPU)

    parts = await asyncio.gather(*(scene.claim(7, worker=f"w{number}", can=GPU) for number in range(6)))

    assert sorted(task_id for part in parts for task_id in ids(part)) == sorted(ids(tasks))


async def test_a_repeated_claim_gets_the_same_task(scene: Scene) -> None:
    await scene.add_many(2, needs=GPU)
    can = frozenset(GPU)
    request = ClaimRequest(worker_id="w1", run_ids=[new_run_id()], names=NAMES, lease_ms=LEASE_MS, capabilities=can)

    first = await scene.stores.tasks.claim(request)

    assert ids(await scene.stores.tasks.claim(request)) == ids(first)
    assert await scene.counts() == {"running": 1, "pending": 1}


# whatever happens to them, they stay with those who can do them


async def test_a_retry_waits_for_one_who_can_do_it(scene: Scene) -> None:
    task = await scene.add(needs=GPU)
    [running] = await scene.claim(can=GPU)
    await scene.fail(running)
    scene.clock.advance(5)

    assert await scene.claim() == []
    assert ids(await scene.claim(can=GPU)) == [task.id]


async def test_what_is_handed_back_waits_for_one_who_can_do_it(scene: Scene) -> None:
    task = await scene.add(needs=GPU)
    [running] = await scene.claim(can=GPU)
    await scene.release(running)

    assert await scene.claim() == []
    assert ids(await scene.claim(can=BOTH)) == [task.id]


async def test_what_was_lost_with_its_worker_waits_for_one_who_can_do_it(scene: Scene) -> None:
    task = await scene.add(needs=GPU)
    await scene.claim(can=GPU)
    await scene.let_lease_run_out()

    assert await scene.claim(worker="w2") == []
    [again] = await scene.claim(worker="w2", can=GPU)
    assert (again.id, again.attempt) == (task.id, 2)
    assert (await scene.event_types(task.id))[-1] == "task.reclaimed"


async def test_a_delayed_one_comes_due_for_those_who_can_do_it(scene: Scene) -> None:
    task = await scene.add(needs=GPU, run_after=scene.clock.now() + 5_000)

    assert await scene.claim(can=GPU) == []
    scene.clock.advance(6)
    assert await scene.claim() == []
    assert ids(await scene.claim(can=GPU)) == [task.id]


async def test_one_that_waited_for_another_goes_to_who_can_do_it(scene: Scene) -> None:
    first = await scene.add()
    second = await scene.add(needs=GPU, depends_on=(first.id,))
    assert await scene.claim(5, can=("net",)) != []
    assert await scene.claim(5, can=GPU) == []

    await scene.succeed(await scene.get(first.id))

    assert await scene.claim(5) == []
    assert ids(await scene.claim(5, can=GPU)) == [second.id]


async def test_one_that_waits_for_locks_comes_back_to_who_can_do_it(scene: Scene) -> None:
    task = await scene.add(needs=GPU)
    [running] = await scene.claim(can=GPU)
    deferred = settle(running, Deferred(("repo:app",), 60_000), now=scene.clock.now(), randomness=MIDDLE)
    await scene.stores.tasks.commit(deferred)
    await scene.stores.tasks.commit(requeue(await scene.get(task.id), now=scene.clock.now()))

    assert await scene.claim() == []
    assert ids(await scene.claim(can=GPU)) == [task.id]


async def test_a_dead_letter_that_is_run_again_needs_the_same(scene: Scene) -> None:
    task = await scene.add(needs=GPU)
    [running] = await scene.claim(can=GPU)
    await scene.fail_for_good(running)
    await scene.replay(task.id)

    assert await scene.claim() == []
    assert ids(await scene.claim(can=GPU)) == [task.id]


async def test_one_that_is_cancelled_while_it_waits_is_gone(scene: Scene) -> None:
    first, second = await scene.add_many(2, needs=GPU)
    await scene.cancel(first.id)

    assert ids(await scene.claim(5, can=GPU)) == [second.id]


async def test_one_whose_deadline_passes_fails(scene: Scene) -> None:
    task = await scene.add(needs=GPU, deadline=scene.clock.now() + 1_000)
    scene.clock.advance(2)
    await scene.sweep()

    assert await scene.status(task.id) == "failed"
    assert await scene.claim(can=GPU) == []


async def test_finished_ones_are_pruned(scene: Scene) -> None:
    task = await scene.add(needs=GPU)
    await scene.run(can=GPU)

    assert await scene.stores.sweeps.prune([task.id]) == 1
    assert await scene.counts() == {}


@pytest.mark.parametrize(("before", "after"), [((), GPU), (GPU, ()), (GPU, BOTH)])
async def test_a_draft_may_come_to_need_something_else(
    scene: Scene, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    draft = await scene.add(status=Status.DRAFT, needs=before)
    edited = edit(draft, now=scene.clock.now(), needs=after)
    await scene.stores.tasks.commit(edited)
    stored = await scene.get(draft.id)
    ready = structs.replace(edited, before=stored, after=structs.replace(stored, status=Status.PENDING))
    await scene.stores.tasks.commit(structs.replace(ready, guard=structs.replace(ready.guard, version=stored.version)))

    assert stored.needs == after
    assert bool(await scene.claim()) == (not after)
    assert bool(await scene.claim(can=after or ("tpu",))) == bool(after)


# limits


async def test_the_limit_of_a_name_counts_those_with_needs_too(scene: Scene) -> None:
    await scene.define("send", concurrency=2)
    await scene.add_many(2, needs=GPU)
    await scene.add_many(2)

    assert len(await scene.claim(4, can=GPU)) == 2
    assert await scene.claim(4, worker="w2", can=GPU) == []
    assert await scene.claim(4, worker="w3") == []


async def test_the_rate_of_a_name_counts_those_with_needs_too(scene: Scene) -> None:
    await scene.define("send", rate_count=2, rate_period_ms=1_000)
    await scene.add_many(2, needs=GPU)
    await scene.add()

    assert len(await scene.claim(4, can=GPU)) == 2
    assert await scene.claim(4) == []
    scene.clock.advance(1)
    assert len(await scene.claim(4)) == 1


async def test_a_key_is_held_by_one_whatever_it_needs(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=1)
    asking = await scene.add(needs=GPU, concurrency_key="k")
    plain = await scene.add(concurrency_key="k")

    [first] = await scene.claim(5, can=GPU)
    assert first.id == asking.id
    assert await scene.claim(5) == []
    await scene.succeed(first)
    assert ids(await scene.claim(5)) == [plain.id]


async def test_who_cannot_be_served_does_not_keep_a_key_from_others(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=1)
    first = await scene.add(concurrency_key="k")
    await scene.claim()
    asking = await scene.add(needs=GPU, concurrency_key="k")
    both = await scene.add(needs=BOTH, concurrency_key="k")
    plain = await scene.add(concurrency_key="k")
    assert await scene.claim(5, can=BOTH) == [], "all wait for the key now"

    await scene.succeed(await scene.get(first.id))

    [running] = await scene.claim(5)
    assert running.id == plain.id, "it was behind those that nobody here can do"
    await scene.succeed(running)
    [running] = await scene.claim(5, can=GPU)
    assert running.id == asking.id
    await scene.succeed(running)
    assert await scene.run(5, can=BOTH) == [both.id]


async def test_parked_ones_come_back_when_limits_change(scene: Scene) -> None:
    await scene.define("send", concurrency_per_key=1)
    await scene.add_many(3, needs=GPU, concurrency_key="k")
    assert len(await scene.claim(5, can=GPU)) == 1

    await scene.define("send")

    assert await scene.claim(5) == []
    assert len(await scene.claim(5, can=GPU)) == 2


async def test_a_paused_queue_keeps_them_back(scene: Scene) -> None:
    task = await scene.add(needs=GPU, queue="slow")
    await scene.stores.queues.configure(Queue(name="slow", paused=True))
    assert await scene.claim(can=GPU) == []

    await scene.stores.queues.configure(Queue(name="slow", paused=False))
    assert ids(await scene.claim(can=GPU)) == [task.id]


# who looks


async def test_they_are_counted_among_those_that_wait(scene: Scene) -> None:
    await scene.add(needs=GPU)
    await scene.add("build", needs=BOTH)
    last = await scene.add()
    since = scene.clock.now()
    scene.clock.advance(3)

    assert await scene.stores.queues.ahead_of(last.id) == 2
    assert await scene.stores.queues.oldest_ready() == {"default": since}
    await scene.claim()
    assert await scene.stores.queues.oldest_ready() == {"default": since}


async def test_a_worker_tells_what_it_can_do(scene: Scene) -> None:
    worker = structs.replace(scene.worker(), capabilities=BOTH)
    await scene.stores.workers.register(worker, [], ttl_ms=LEASE_MS)

    [known] = await scene.stores.workers.list_workers()

    assert known.capabilities == BOTH
