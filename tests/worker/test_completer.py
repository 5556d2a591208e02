"""Outcomes that cannot be written, and lines that cannot: each is the affair of its own task."""

import asyncio
from typing import Any

import pytest

from ade import Context, Status
from ade.errors import StaleWrite, StoreCorrupt, StoreUnavailable
from tests.domain import Change, Verb
from tests.worker.harness import Gate, Workshop, soon


async def test_an_outcome_the_store_cannot_take_is_a_failure_of_its_task_alone(workshop: Workshop) -> None:
    async def work() -> None: ...

    async def commit_each(changes: list[Change]) -> list[StaleWrite | None]:
        if any(change.before.name == "bad" and change.verb is Verb.SUCCEED for change in changes):
            raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")
        return await workshop.stores.tasks.commit_each(changes)

    workshop.handle(work, name="bad")
    workshop.handle(work, name="good")
    good = await workshop.enqueue_many("good", 5)
    bad = await workshop.enqueue("bad")
    async with workshop.worker(stores=workshop.with_tasks(commit_each=commit_each)):
        for task in good:
            assert (await workshop.final(task)).status is Status.COMPLETED
        failed = await workshop.final(bad)
    assert failed.error is not None
    assert failed.error.type == "NotStored"
    assert failed.error.message.isascii()


async def test_outcomes_of_a_part_that_does_not_respond_hold_up_no_others(workshop: Workshop) -> None:
    is_back, held_up = asyncio.Event(), asyncio.Event()

    async def work() -> None: ...

    async def commit_each(changes: list[Change]) -> list[StaleWrite | None]:
        far = [change for change in changes if change.before.name == "far" and not is_back.is_set()]
        near = [change for change in changes if change not in far]
        answers = dict(zip([c.task_id for c in near], await workshop.stores.tasks.commit_each(near), strict=True))
        if far:
            held_up.set()
            error = StoreUnavailable("its shard does not respond")
            error.answers = [answers.get(change.task_id, error) for change in changes]
            raise error
        return [answers[change.task_id] for change in changes]

    workshop.handle(work, name="far")
    workshop.handle(work, name="near")
    far = await workshop.enqueue("far")
    async with workshop.worker(stores=workshop.with_tasks(commit_each=commit_each)):
        await soon(held_up)
        near = await workshop.enqueue_many("near", 20)
        for task in near:
            assert (await workshop.final(task)).status is Status.COMPLETED
        assert (await workshop.get(far)).status is Status.RUNNING
        is_back.set()
        done = await workshop.final(far)
    assert (done.status, done.attempt) == (Status.COMPLETED, 1)


async def test_a_broken_store_is_not_waited_for(workshop: Workshop) -> None:
    calls, given_up = 0, asyncio.Event()

    async def commit_each(changes: list[Change]) -> list[StaleWrite | None]:
        nonlocal calls
        calls += 1
        if calls == 2:
            given_up.set()
        raise StoreCorrupt("not a database")

    async def work() -> None: ...

    workshop.handle(work)
    task = await workshop.enqueue("work")
    async with workshop.worker(stores=workshop.with_tasks(commit_each=commit_each)) as shift:
        await soon(given_up)
        shift.stop.set()
        handover = await shift.job
    assert handover.left_behind == ()  # it lets go of the run; the lease runs out
    assert (await workshop.get(task)).status is Status.RUNNING


async def test_a_line_with_broken_text_costs_nobody_an_outcome(workshop: Workshop) -> None:
    async def say(ctx: Context) -> None:
        await ctx.log("fine")

    async def say_badly(ctx: Context) -> None:
        await ctx.log("bad \udcff line", file="\udcfe")

    workshop.handle(say)
    workshop.handle(say_badly)
    tasks = [*await workshop.enqueue_many("say", 5), await workshop.enqueue("say_badly")]
    async with workshop.worker():
        for task in tasks:
            done = await workshop.final(task)
            assert (done.status, done.attempt) == (Status.COMPLETED, 1)
    [line] = await workshop.stores.outputs.read_output(tasks[-1].id, 0, 10)
    assert line.text == "bad \\udcff line file=\\udcfe"


@pytest.mark.parametrize("error", [SystemError("broken"), asyncio.CancelledError(), GeneratorExit()])
async def test_a_run_whose_commit_failed_is_not_renewed_for_ever(workshop: Workshop, error: BaseException) -> None:
    async def commit_each(changes: list[Change]) -> list[Any]:
        if changes[0].before.name == "bad":
            raise error
        return await workshop.stores.tasks.commit_each(changes)

    async def work() -> None: ...

    workshop.handle(work, name="bad")
    workshop.handle(work, name="good")
    async with workshop.worker(stores=workshop.with_tasks(commit_each=commit_each), concurrency=1) as shift:
        bad = await workshop.enqueue("bad")
        good = await workshop.enqueue("good")
        assert (await workshop.final(good)).status is Status.COMPLETED  # the only slot is free again
        assert (await shift.end()).left_behind == ()
    assert (await workshop.get(bad)).status is not Status.COMPLETED


async def test_a_cancelled_commit_is_tried_again(workshop: Workshop) -> None:
    commit = Gate()

    async def commit_each(changes: list[Change]) -> list[Any]:
        if not commit.reached.is_set():
            await commit()
        return await workshop.stores.tasks.commit_each(changes)

    async def work() -> None: ...

    workshop.handle(work)
    task = await workshop.enqueue("work")
    async with workshop.worker(stores=workshop.with_tasks(commit_each=commit_each)):
        await soon(commit.reached)
        [lane] = [each for each in asyncio.all_tasks() if each.get_name() == "ade-finish"]
        lane.cancel()
        done = await workshop.final(task)
    assert (done.status, done.attempt) == (Status.COMPLETED, 1)
