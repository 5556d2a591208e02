"""How a worker gets and finishes work."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from ade import Status, Task
from ade.errors import StaleWrite, StoreUnavailable
from ade.worker.instrumentation import PERFORMED
from ade.worker.poller import RunIds
from ade.worker.worker import WorkerService
from tests.domain import Change, ClaimRequest, lose_lease
from tests.worker.harness import Gate, Replaced, Workshop, plain, soon


async def test_a_lone_task_is_done_without_any_polling(workshop: Workshop) -> None:
    async def greet(name: str) -> str:
        return f"hello {name}"

    workshop.handle(greet)
    async with workshop.worker():
        first = await workshop.final(await workshop.enqueue("greet", {"name": "Ann"}))
        second = await workshop.final(await workshop.enqueue("greet", {"name": "Ben"}))

    assert (first.status, plain(first.result)) == (Status.COMPLETED, "hello Ann")
    assert plain(second.result) == "hello Ben"
    assert second.attempt == 1


async def test_what_was_claimed_begins_before_the_store_is_asked_what_comes_next(workshop: Workshop) -> None:
    order: list[str] = []

    async def work() -> None:
        order.append("begun")

    async def next_due() -> int | None:
        order.append("asked")
        return await workshop.stores.sweeps.next_due()

    workshop.handle(work)
    task = await workshop.enqueue("work")
    sweeps: Any = Replaced(workshop.stores.sweeps, {"next_due": next_due})
    async with workshop.worker(stores=replace(workshop.stores, sweeps=sweeps)):
        await workshop.final(task)

    assert order[0] == "begun"


async def test_a_backlog_is_claimed_and_committed_in_batches(workshop: Workshop) -> None:
    async def nothing() -> None: ...

    claims: list[int] = []
    commits: list[int] = []

    async def claim(request: ClaimRequest) -> list[Task]:
        tasks = await workshop.stores.tasks.claim(request)
        claims.append(len(tasks))
        return tasks

    async def commit_each(changes: list[Change]) -> list[StaleWrite | None]:
        commits.append(len(changes))
        return await workshop.stores.tasks.commit_each(changes)

    workshop.handle(nothing)
    tasks = await workshop.enqueue_many("nothing", 400)
    async with workshop.worker(concurrency=100, stores=workshop.with_tasks(claim=claim, commit_each=commit_each)):
        for task in tasks:
            assert (await workshop.final(task)).status is Status.COMPLETED

    assert sum(commits) == 400
    assert len([size for size in claims if size]) <= 20
    assert len(commits) <= 40


async def test_no_more_tasks_run_at_once_than_the_worker_may(workshop: Workshop) -> None:
    running, most = 0, 0

    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1

    workshop.handle(busy)
    tasks = await workshop.enqueue_many("busy", 50)
    async with workshop.worker(concurrency=7):
        for task in tasks:
            await workshop.final(task)

    assert most == 7


async def test_one_free_slot_is_enough_while_the_others_are_busy_for_long(workshop: Workshop) -> None:
    gate = Gate()

    async def long() -> None:
        await gate()

    async def short() -> None: ...

    workshop.handle(long)
    workshop.handle(short)
    long_ones = await workshop.enqueue_many("long", 9, priority=0)
    short_ones = await workshop.enqueue_many("short", 20)
    async with workshop.worker(concurrency=10):
        for task in short_ones:
            assert (await workshop.final(task)).status is Status.COMPLETED
        gate.open()
        for task in long_ones:
            await workshop.final(task)


async def test_slots_are_filled_at_once_though_one_call_hands_out_only_a_few(workshop: Workshop) -> None:
    gate, started, all_started = Gate(), 0, asyncio.Event()

    async def long() -> None:
        nonlocal started
        started += 1
        if started == 10:
            all_started.set()
        await gate()

    workshop.handle(long)
    tasks = await workshop.enqueue_many("long", 12)
    async with workshop.worker(concurrency=10, batch=3):
        await soon(all_started)
        gate.open()
        for task in tasks:
            await workshop.final(task)
    assert started == 12


async def test_work_that_comes_while_a_claim_is_under_way_is_not_overlooked(workshop: Workshop) -> None:
    async def nothing() -> None: ...

    late: list[Task] = []

    async def claim(request: ClaimRequest) -> list[Task]:
        tasks = await workshop.stores.tasks.claim(request)
        if not late:
            late.append(await workshop.enqueue("nothing"))
        return tasks

    workshop.handle(nothing)
    async with workshop.worker(stores=workshop.with_tasks(claim=claim)):
        early = await workshop.enqueue("nothing")
        await workshop.final(early)
        assert (await workshop.final(late[0])).status is Status.COMPLETED


async def test_a_delayed_task_starts_when_it_is_due(workshop: Workshop) -> None:
    async def nothing() -> None: ...

    workshop.handle(nothing)
    async with workshop.worker():
        due = workshop.stores.clock.now() + 60
        task = await workshop.final(await workshop.enqueue("nothing", run_after=due))

    assert task.started_at is not None
    assert due <= task.started_at <= due + 60_000  # and not when it looks by itself, after ten minutes


async def test_a_failed_run_is_repeated_by_the_same_worker_when_its_retry_is_due(workshop: Workshop) -> None:
    attempts = 0

    async def flaky() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise ConnectionError("not yet")
        return "done"

    workshop.handle(flaky)
    task = await workshop.perform("flaky")

    assert (task.status, task.attempt, task.error) == (Status.COMPLETED, 3, None)


async def test_a_task_whose_dependency_ends_here_follows_at_once(workshop: Workshop) -> None:
    async def nothing() -> None: ...

    workshop.handle(nothing)
    first = workshop.new("nothing")
    second = workshop.new("nothing", depends_on=(first.id,))
    async with workshop.worker():
        await workshop.stores.tasks.add([first, second])
        await workshop.enqueue("nothing")
        assert (await workshop.final(second)).status is Status.COMPLETED


async def test_a_rate_limit_holds_tasks_back_and_lets_them_through_in_time(workshop: Workshop) -> None:
    async def call() -> None: ...

    workshop.handle(call, rate_count=1, rate_period_ms=40)
    async with workshop.worker():
        tasks = await workshop.enqueue_many("call", 3)
        final = [await workshop.final(task) for task in tasks]

    starts = sorted(task.started_at or 0 for task in final)
    assert starts[2] - starts[0] >= 75
    assert starts[2] - starts[0] < 60_000


async def test_a_claim_whose_answer_was_lost_is_repeated_and_loses_nothing(workshop: Workshop) -> None:
    async def nothing() -> None: ...

    asked: list[ClaimRequest] = []

    async def claim(request: ClaimRequest) -> list[Task]:
        asked.append(request)
        tasks = await workshop.stores.tasks.claim(request)
        if len(asked) == 1:
            raise StoreUnavailable("the answer was lost")
        return tasks

    workshop.handle(nothing)
    task = await workshop.enqueue("nothing")
    async with workshop.worker(stores=workshop.with_tasks(claim=claim)):
        final = await workshop.final(task)

    assert final.attempt == 1
    assert asked[0].run_ids == asked[1].run_ids


async def test_a_commit_whose_answer_was_lost_is_repeated_until_it_is_known(workshop: Workshop) -> None:
    async def nothing() -> None: ...

    tries = 0

    async def commit_each(changes: list[Change]) -> list[StaleWrite | None]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable("nothing was written")
        answers = await workshop.stores.tasks.commit_each(changes)
        if tries == 2:
            raise StoreUnavailable("written, but the answer was lost")
        return answers

    workshop.handle(nothing)
    task = await workshop.enqueue("nothing")
    async with workshop.worker(stores=workshop.with_tasks(commit_each=commit_each)) as shift:
        await workshop.final(task)
        await shift.end()

    assert tries == 3
    assert (await workshop.event_types(task)).count("task.succeeded") == 1


async def test_one_change_that_cannot_be_written_does_not_hold_up_the_others(workshop: Workshop) -> None:
    async def nothing(poison: bool = False) -> None: ...

    async def commit_each(changes: list[Change]) -> list[StaleWrite | None]:
        if any(plain(change.before.args) for change in changes):
            raise ZeroDivisionError("a defect")
        return await workshop.stores.tasks.commit_each(changes)

    workshop.handle(nothing)
    poisoned = await workshop.enqueue("nothing", {"poison": True}, priority=0)
    healthy = await workshop.enqueue_many("nothing", 3)
    async with workshop.worker(stores=workshop.with_tasks(commit_each=commit_each)):
        for task in healthy:
            assert (await workshop.final(task)).status is Status.COMPLETED

    assert (await workshop.get(poisoned)).status is Status.RUNNING  # until its lease runs out


async def test_the_result_of_a_run_whose_task_another_worker_has_claimed_is_thrown_away(workshop: Workshop) -> None:
    gate = Gate()

    async def slow() -> str:
        return "too late"

    workshop.handle(slow)
    workshop.probe.on(PERFORMED, gate)
    task = await workshop.enqueue("slow")
    async with workshop.worker() as shift:
        await soon(gate.reached)
        running = await workshop.get(task)
        await workshop.stores.tasks.commit(lose_lease(running, now=workshop.stores.clock.now()))
        request = ClaimRequest(worker_id="other", run_ids=["b" * 32], names=frozenset({"slow"}))
        [claimed] = await workshop.stores.tasks.claim(request)
        gate.open()
        await shift.end()

    assert await workshop.get(task) == claimed
    assert "task.succeeded" not in await workshop.event_types(task)


async def test_modes_do_not_wait_for_each_other(workshop: Workshop) -> None:
    """All threads are busy; an async task must not stand behind the plain functions that wait for one."""
    gate = Gate()
    loop = asyncio.get_running_loop()

    def occupy() -> None:
        asyncio.run_coroutine_threadsafe(gate(), loop).result()

    async def quick() -> None: ...

    workshop.handle(occupy)
    workshop.handle(quick)
    blocking = await workshop.enqueue_many("occupy", 5, priority=0)
    async with workshop.worker(threads=2, concurrency=10):
        await soon(gate.reached)
        assert (await workshop.final(await workshop.enqueue("quick"))).status is Status.COMPLETED
        statuses = [(await workshop.get(task)).status for task in blocking]
        assert statuses.count(Status.RUNNING) == 2
        gate.open()
        for task in blocking:
            assert (await workshop.final(task)).status is Status.COMPLETED


@pytest.mark.parametrize(("concurrency", "threads"), [(1, 1), (1, 8), (4, 4)])
async def test_priorities_hold_across_modes(workshop: Workshop, concurrency: int, threads: int) -> None:
    async def on_the_loop() -> None: ...

    def in_a_thread() -> None: ...

    workshop.handle(on_the_loop)
    workshop.handle(in_a_thread)
    names = ["in_a_thread" if priority % 4 < 2 else "on_the_loop" for priority in range(8)]
    tasks = [await workshop.enqueue(name, priority=priority) for priority, name in reversed([*enumerate(names)])]
    claimed: list[int] = []

    async def claim(request: ClaimRequest) -> list[Task]:
        tasks = await workshop.stores.tasks.claim(request)
        claimed.extend(task.priority for task in tasks)
        return tasks

    async with workshop.worker(concurrency=concurrency, threads=threads, stores=workshop.with_tasks(claim=claim)):
        for task in tasks:
            await workshop.final(task)
    assert claimed == list(range(8))


async def test_what_is_first_in_line_is_claimed_first_though_its_mode_has_little_room(workshop: Workshop) -> None:
    claimed: list[str] = []

    async def claim(request: ClaimRequest) -> list[Task]:
        tasks = await workshop.stores.tasks.claim(request)
        claimed.extend(task.name for task in tasks)
        return tasks

    async def on_the_loop() -> None: ...

    def in_a_thread() -> None: ...

    workshop.handle(on_the_loop)
    workshop.handle(in_a_thread)
    many = await workshop.enqueue_many("on_the_loop", 30, priority=9)
    first = await workshop.enqueue("in_a_thread", priority=0)
    async with workshop.worker(concurrency=10, threads=1, stores=workshop.with_tasks(claim=claim)):
        for task in (first, *many):
            assert (await workshop.final(task)).status is Status.COMPLETED
    assert claimed[0] == "in_a_thread"


async def test_a_worker_without_handlers_waits_quietly_and_ends_when_told(workshop: Workshop) -> None:
    task = await workshop.enqueue("unknown")
    async with workshop.worker() as shift:
        handover = await shift.end()

    assert handover.left_behind == ()
    assert (await workshop.get(task)).attempt == 0


async def test_a_worker_whose_store_does_not_take_it_in_leaves_nothing_behind(workshop: Workshop) -> None:
    async def register(*known: object) -> None:
        raise StoreUnavailable("no route")

    workers: Any = Replaced(workshop.stores.workers, {"register": register})
    runtime = WorkerService(replace(workshop.stores, workers=workers), workshop.registry)
    with pytest.raises(StoreUnavailable):
        await runtime.run(asyncio.Event())


async def test_a_worker_tells_how_it_is_doing(workshop: Workshop) -> None:
    async def nothing() -> None: ...

    workshop.handle(nothing)
    before = workshop.stores.clock.now()
    async with workshop.worker(queues=("default", "mail")) as shift:
        await workshop.final(await workshop.enqueue("nothing"))
        [worker] = await workshop.stores.workers.list_workers()
        assert worker.id == shift.runtime.id
        assert worker.names == ("nothing",)
        assert worker.queues == ("default", "mail")
        assert worker.progress_at >= before
        assert not worker.draining

    assert await workshop.stores.workers.list_workers() == []


def test_run_ids_are_never_given_twice() -> None:
    ids = RunIds(stock=5)
    taken = [run_id for count in (3, 3, 1, 17, 2) for run_id in ids.take(count)]
    assert len(set(taken)) == len(taken) == 26
    assert all(len(run_id) == 32 and int(run_id, 16) >= 0 for run_id in taken)
