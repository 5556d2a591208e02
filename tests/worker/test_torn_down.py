"""A worker whose program cancels all tasks of the event loop, as the end of `asyncio.run` does."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from ade import Status, Task
from ade.failures import FailureKind
from ade.tasks.outcomes import Outcome
from ade.tasks.service import cancel
from ade.worker.worker import WorkerService
from tests.domain import HandlerMode
from tests.waiting import eventually
from tests.worker import process_tasks
from tests.worker.harness import ONLY_WHEN_TOLD, Gate, Workshop, soon


class Program:
    """A program with a worker, and whatever else runs on its loop."""

    def __init__(self, workshop: Workshop) -> None:
        self._others = asyncio.all_tasks()  # of the test itself
        self.stop = asyncio.Event()
        self.worker = WorkerService(workshop.stores, workshop.registry, workshop.options, settings=workshop.settings)
        self._working = asyncio.create_task(self.worker.run(self.stop))

    async def cancel_all(self) -> None:
        for task in asyncio.all_tasks() - self._others:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._working


@pytest.mark.parametrize("mode", [HandlerMode.ASYNC, HandlerMode.PROCESS])
async def test_runs_are_returned_and_not_failed(workshop: Workshop, mode: HandlerMode) -> None:
    gate = Gate()

    async def wait() -> None:
        await gate()

    async def progress() -> object:
        return (await workshop.get(task)).progress

    workshop.handle(wait if mode is HandlerMode.ASYNC else process_tasks.say_and_wait, name="wait", mode=mode)
    task = await workshop.enqueue("wait", max_attempts=1)
    program = Program(workshop)
    await (soon(gate.reached) if mode is HandlerMode.ASYNC else eventually(progress))
    await program.cancel_all()
    after = await workshop.get(task)
    assert (after.status, after.attempt, after.error) == (Status.PENDING, 0, None)


async def test_a_run_whose_thread_goes_on_keeps_its_lease(workshop: Workshop) -> None:
    release, began, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()

    def wait() -> None:
        loop.call_soon_threadsafe(began.set)
        release.wait()

    workshop.handle(wait)
    task = await workshop.enqueue("wait", max_attempts=1)
    program = Program(workshop)
    await soon(began)
    await program.cancel_all()
    release.set()
    after = await workshop.get(task)
    assert (after.status, after.error) == (Status.RUNNING, None)


async def test_a_worker_that_is_cancelled_while_it_drains_renews_nothing_more(workshop: Workshop) -> None:
    gate = Gate()

    async def wait() -> None:
        await gate()

    async def draining() -> bool:
        return program.worker.draining

    async def has_no_lease_thread() -> bool:
        return all(thread.name != "ade-lease" for thread in threading.enumerate())

    workshop.handle(wait)
    task = await workshop.enqueue("wait")
    program = Program(workshop)
    await soon(gate.reached)
    program.stop.set()
    await eventually(draining)
    await program.cancel_all()
    await eventually(has_no_lease_thread)
    after = await workshop.get(task)
    assert after.error is None
    assert not after.is_final


async def test_a_handler_that_cancels_itself_still_fails(workshop: Workshop) -> None:
    async def give_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    workshop.handle(give_up)
    task = await workshop.perform("give_up", max_attempts=1)
    assert task.error is not None
    assert (task.error.type, task.error.kind) == ("CancelledError", FailureKind.RAISED)


async def test_a_run_can_be_cancelled_after_its_thread_has_returned(workshop: Workshop) -> None:
    gate, cancelled = Gate(), asyncio.Event()

    async def linger(task: Task, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        outcome = await proceed()
        try:
            await gate()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return outcome

    def work() -> None: ...

    workshop.handle(work)
    task = await workshop.enqueue("work")
    async with workshop.worker(middleware=[linger], cancel_grace_s=ONLY_WHEN_TOLD):
        await soon(gate.reached)
        await cancel(workshop.stores, task.id, None)
        await soon(cancelled)
    assert (await workshop.get(task)).status is Status.CANCELLED
