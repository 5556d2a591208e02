"""Runs that are told to end: too slow, cancelled, lost, or in the way of a shutdown."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from ade import Status, SyncContext, Task
from ade.errors import StoreUnavailable
from ade.failures import FailureKind
from ade.stores.ports import STOP, ClaimRequest, Renewal
from ade.tasks.service import cancel
from ade.worker import supervisor
from tests.domain import HandlerMode, Worker, lose_lease
from tests.waiting import eventually
from tests.worker import process_tasks
from tests.worker.harness import ONLY_WHEN_TOLD, Gate, Replaced, Workshop, plain, soon


class Ending:
    """A handler in either mode that waits until it is told to end, and tells when it began and ended."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def handler(self, mode: HandlerMode) -> Callable[..., Any]:
        async def wait_async() -> None:
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()

        def wait_in_thread(ctx: SyncContext) -> None:
            self._loop.call_soon_threadsafe(self.began.set)
            while not ctx.cancelled:
                threading.Event().wait(0.005)
            self._loop.call_soon_threadsafe(self.ended.set)
            ctx.raise_if_cancelled()

        return wait_async if mode is HandlerMode.ASYNC else wait_in_thread


@pytest.mark.parametrize("mode", [HandlerMode.ASYNC, HandlerMode.THREAD])
class TestBothWays:
    async def test_a_run_past_its_time_out_fails_and_may_be_tried_again(
        self, workshop: Workshop, mode: HandlerMode
    ) -> None:
        ending = Ending()
        workshop.handle(ending.handler(mode), name="slow", mode=mode)
        task = await workshop.perform("slow", timeout_ms=200, max_attempts=2)

        assert ending.ended.is_set()
        assert task.error is not None
        assert (task.error.kind, task.attempt, task.timeouts) == (FailureKind.TIMED_OUT, 2, 1)
        assert task.error.message == "the run took longer than its timeout of 0.3 s"

    async def test_a_cancelled_task_is_stopped_by_push_and_writes_nothing(
        self, workshop: Workshop, mode: HandlerMode
    ) -> None:
        ending = Ending()
        workshop.handle(ending.handler(mode), name="long", mode=mode)
        task = await workshop.enqueue("long")
        async with workshop.worker(lease_s=3000.0, heartbeat_s=ONLY_WHEN_TOLD) as shift:
            await soon(ending.began)
            await cancel(workshop.stores, task.id, "not needed")
            await soon(ending.ended)
            await shift.end()

        assert (await workshop.get(task)).status is Status.CANCELLED
        assert (await workshop.event_types(task))[-1] == "task.cancelled"

    async def test_a_run_that_lost_its_lease_is_stopped(self, workshop: Workshop, mode: HandlerMode) -> None:
        ending = Ending()
        workshop.handle(ending.handler(mode), name="long", mode=mode)
        task = await workshop.enqueue("long", max_attempts=1)
        async with workshop.worker():
            await soon(ending.began)
            lost = lose_lease(await workshop.get(task), now=workshop.stores.clock.now())
            await workshop.stores.tasks.commit(lost)
            workshop.stores.wakeups.notify(STOP)
            await soon(ending.ended)

        assert (await workshop.get(task)).status is Status.FAILED

    async def test_a_shutdown_hands_back_what_does_not_end_in_time(self, workshop: Workshop, mode: HandlerMode) -> None:
        ending = Ending()
        workshop.handle(ending.handler(mode), name="long", mode=mode)
        task = await workshop.enqueue("long", max_attempts=1)
        async with workshop.worker(grace_s=0.01) as shift:
            await soon(ending.began)
            handover = await shift.end()

        assert ending.ended.is_set()
        assert handover.handed_back == (task.id,)
        assert handover.left_behind == ()
        handed_back = await workshop.get(task)
        assert (handed_back.status, handed_back.attempt) == (Status.PENDING, 0)


async def test_a_handler_that_will_not_be_cancelled_loses_its_slot(workshop: Workshop) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    async def polite() -> None: ...

    workshop.handle(stubborn)
    workshop.handle(polite)
    async with workshop.worker(concurrency=1, cancel_grace_s=0.05):
        stuck = await workshop.final(await workshop.enqueue("stubborn", timeout_ms=20, max_attempts=1))
        other = await workshop.final(await workshop.enqueue("polite"))
        release.set()

    assert stuck.error is not None
    assert stuck.error.kind is FailureKind.TIMED_OUT
    assert other.status is Status.COMPLETED


async def test_a_thread_that_never_looks_up_loses_its_slot_and_does_not_block_the_end(workshop: Workshop) -> None:
    release = threading.Event()

    def deaf() -> None:
        release.wait()

    def hearing() -> None: ...

    workshop.handle(deaf)
    workshop.handle(hearing)
    async with workshop.worker(concurrency=1, threads=1, cancel_grace_s=0.05):
        stuck = await workshop.final(await workshop.enqueue("deaf", timeout_ms=20, max_attempts=1))
        other = await workshop.final(await workshop.enqueue("hearing"))
    release.set()

    assert stuck.status is Status.FAILED
    assert other.status is Status.COMPLETED


async def test_a_result_that_comes_just_after_the_time_out_is_kept(workshop: Workshop) -> None:
    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished while cleaning up"
        return "never"

    workshop.handle(late)
    task = await workshop.perform("late", timeout_ms=500)

    assert (task.status, plain(task.result)) == (Status.COMPLETED, "finished while cleaning up")


async def test_a_task_without_a_time_out_has_none(workshop: Workshop) -> None:
    gate = Gate()

    async def patient() -> None:
        await gate()

    workshop.handle(patient)
    task = await workshop.enqueue("patient")
    async with workshop.worker():
        await soon(gate.reached)
        gate.open()
        assert (await workshop.final(task)).status is Status.COMPLETED


class TestInProcesses:
    async def test_a_process_past_its_time_out_is_killed(self, workshop: Workshop) -> None:
        workshop.handle(process_tasks.wait_for_ever, mode=HandlerMode.PROCESS)
        task = await workshop.perform("wait_for_ever", timeout_ms=500, max_attempts=1)
        assert task.error is not None
        assert task.error.kind is FailureKind.TIMED_OUT

    async def test_a_cancelled_process_is_killed_with_what_it_has_started(self, workshop: Workshop) -> None:
        workshop.handle(process_tasks.say_and_wait, mode=HandlerMode.PROCESS)
        task = await workshop.enqueue("say_and_wait")
        async with workshop.worker() as shift:
            pids = await self._pids(workshop, task)
            await cancel(workshop.stores, task.id, None)
            await self._until_dead(pids)
            await shift.end()
        assert (await workshop.get(task)).status is Status.CANCELLED

    async def test_a_shutdown_kills_processes_and_hands_their_tasks_back(self, workshop: Workshop) -> None:
        workshop.handle(process_tasks.say_and_wait, mode=HandlerMode.PROCESS)
        task = await workshop.enqueue("say_and_wait")
        async with workshop.worker(grace_s=0.01) as shift:
            pids = await self._pids(workshop, task)
            handover = await shift.end()
        await self._until_dead(pids)
        assert handover.handed_back == (task.id,)

    async def _pids(self, workshop: Workshop, task: Task) -> dict[str, int]:
        """Which processes the task has told of."""

        async def progress() -> Raw | None:
            return (await workshop.get(task)).progress

        return msgspec.json.decode(await eventually(progress), type=dict[str, int])

    async def _until_dead(self, pids: dict[str, int]) -> None:
        async def all_dead() -> bool:
            return not any(_is_alive(pid) for pid in pids.values())

        await eventually(all_dead)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class TestShutdown:
    async def test_what_is_running_may_finish_within_the_grace_period(self, workshop: Workshop) -> None:
        gate = Gate()

        async def nearly_done() -> str:
            await gate()
            return "finished"

        workshop.handle(nearly_done)
        task = await workshop.enqueue("nearly_done")
        async with workshop.worker() as shift:
            await soon(gate.reached)
            shift.stop.set()
            gate.open()
            handover = await shift.job

        assert handover.handed_back == ()
        assert (await workshop.get(task)).status is Status.COMPLETED

    async def test_nothing_new_is_started_once_asked_to_stop(self, workshop: Workshop) -> None:
        gate = Gate()

        async def first() -> None:
            await gate()

        workshop.handle(first)
        await workshop.enqueue("first")
        async with workshop.worker(grace_s=0.05) as shift:
            await soon(gate.reached)
            shift.stop.set()
            late = await workshop.enqueue("first")
            await shift.job

        assert (await workshop.get(late)).attempt == 0
        assert await workshop.event_types(late) == ["task.created"]

    async def test_what_was_claimed_too_late_is_handed_back_unstarted(self, workshop: Workshop) -> None:
        gate = Gate()
        started: list[bool] = []

        async def never() -> None:
            started.append(True)

        async def claim(request: ClaimRequest) -> list[Task]:
            tasks = await workshop.stores.tasks.claim(request)
            await gate()
            return tasks

        async def draining() -> bool:
            return shift.runtime.draining

        workshop.handle(never)
        task = await workshop.enqueue("never")
        async with workshop.worker(stores=workshop.with_tasks(claim=claim)) as shift:
            await soon(gate.reached)
            shift.stop.set()
            await eventually(draining)
            gate.open()
            handover = await shift.job

        assert started == []
        assert handover.handed_back == (task.id,)
        assert (await workshop.get(task)).attempt == 0

    async def test_what_a_claim_brought_whose_answer_was_lost_is_handed_back_too(self, workshop: Workshop) -> None:
        gate = Gate()

        async def never() -> None:
            raise AssertionError

        async def claim(request: ClaimRequest) -> list[Task]:
            tasks = await workshop.stores.tasks.claim(request)
            if gate.reached.is_set():
                return tasks
            await gate()
            raise StoreUnavailable("the answer was lost on its way")

        async def draining() -> bool:
            return shift.runtime.draining

        workshop.handle(never)
        task = await workshop.enqueue("never")
        async with workshop.worker(stores=workshop.with_tasks(claim=claim)) as shift:
            await soon(gate.reached)
            shift.stop.set()
            await eventually(draining)
            gate.open()
            handover = await shift.job

        assert handover.handed_back == (task.id,)
        assert (await workshop.get(task)).attempt == 0

    async def test_a_second_signal_ends_it_at_once(self, workshop: Workshop) -> None:
        began = asyncio.Event()
        release = asyncio.Event()

        async def stubborn() -> None:
            began.set()
            while not release.is_set():
                with suppress(asyncio.CancelledError):
                    await release.wait()

        workshop.handle(stubborn)
        task = await workshop.enqueue("stubborn")
        async with workshop.worker(grace_s=600, cancel_grace_s=600) as shift:
            await soon(began)
            shift.stop.set()
            shift.hurry.set()
            handover = await shift.job
            release.set()

        assert handover.handed_back == (task.id,)

    async def test_a_store_that_stays_away_leaves_tasks_behind_and_says_so(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(supervisor, "_COMMIT_PATIENCE_S", 0.05)

        async def commit_each(changes: object) -> None:
            raise StoreUnavailable("gone")

        async def nothing() -> None: ...

        async def running() -> bool:
            return (await workshop.get(task)).status is Status.RUNNING

        workshop.handle(nothing)
        task = await workshop.enqueue("nothing")
        away = workshop.with_tasks(commit_each=commit_each)
        async with workshop.worker(stores=away, grace_s=0.05, cancel_grace_s=0.05) as shift:
            await eventually(running)
            handover = await shift.end()

        assert handover.left_behind == (task.id,)
        assert shift.runtime._backend is not None
        assert shift.runtime._backend.state.held == {}  # nobody renews what it has given up


async def test_a_worker_cut_off_from_its_store_gives_its_runs_up_before_the_lease_ends(workshop: Workshop) -> None:
    ending = Ending()
    cut_off = False

    def renew(worker: Worker, runs: dict[str, str], *, lease_ms: int, claiming: Sequence[str] = ()) -> Renewal:
        if cut_off:
            raise StoreUnavailable("no route to the store")
        return workshop.stores.workers.renew(worker, runs, lease_ms=lease_ms)

    workshop.handle(ending.handler(HandlerMode.ASYNC), name="long")
    task = await workshop.enqueue("long")
    workers: Any = Replaced(workshop.stores.workers, {"renew": renew})
    stores = replace(workshop.stores, workers=workers)
    async with workshop.worker(stores=stores, lease_s=100.0, heartbeat_s=25.0) as shift:
        await soon(ending.began)
        cut_off = True
        assert shift.runtime._worker is not None
        lease = shift.runtime._worker._lease
        lease._clock = lambda: time.monotonic() + 80.0  # three quarters of the lease go by, and some more
        lease.kick()
        await soon(ending.ended)
        still = await workshop.get(task)
        assert still.lease_until is None or workshop.stores.clock.steady() + 80_000 < still.lease_until
        cut_off = False

        async def is_returned() -> bool:
            return "task.released" in await workshop.event_types(task)

        await eventually(is_returned)  # as soon as the store takes it, and not when the lease expires
    assert (await workshop.get(task)).attempt <= 1
