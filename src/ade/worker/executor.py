"""The executor: starts the runs of a worker, ends them early, and detaches runs that do not end."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from ade.accounts.model import SYSTEM
from ade.approvals.review_requests import writers_of
from ade.errors import STORE_TROUBLE
from ade.locks.requests import request_id
from ade.logs import Log
from ade.tasks.decisions import run_timeout_ms
from ade.tasks.handlers import Handler, Registry
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.outcomes import NOT_STARTED, Deferred, Outcome, Released, Succeeded, Withheld
from ade.worker.backend import WorkerBackend, WorkerOptions
from ade.worker.completer import Completer
from ade.worker.context_backend import ContextBackend
from ade.worker.failures import failure_of, lock_lost, timed_out, unwritable
from ade.worker.handler_call import HandlerInvoker, Middleware, own_cancellation
from ade.worker.instrumentation import PERFORMED, RunReference, WorkerProbe, current_run
from ade.worker.run import MUTE, Run, StopReason
from ade.worker.shared_memory import PREPARING, STARTED
from ade.worker.state import ClaimTrigger, WorkerState
from ade.worker.timer import SharedTimer

log = Log("ade.worker")
RETURNED = {
    StopReason.SHUTDOWN: "the worker was shut down",
    StopReason.UNREACHABLE: "the store did not respond, so the worker gave up the run",
}
_TROUBLE_DELAY_MS = 1_000  # before a run that could not be prepared is claimed again


class RunExecutor:
    """Executes claimed tasks. It owns the handler invoker and the completer."""

    def __init__(
        self,
        backend: WorkerBackend,
        registry: Registry,
        options: WorkerOptions,
        state: WorkerState,
        trigger: ClaimTrigger,
        timer: SharedTimer,
        *,
        middleware: Sequence[Middleware] = (),
        probe: WorkerProbe | None = None,
    ) -> None:
        self._handlers = registry.by_name
        self._cancel_grace_s = options.cancel_grace_s
        self._state = state
        self._held = state.held
        self._trigger = trigger
        self._timer = timer
        self._locks = backend.locks
        self._gates = backend.gates
        self._probe = probe or WorkerProbe()
        self._performer = HandlerInvoker(ContextBackend(backend), backend.payloads, middleware, backend.groups)
        self._finisher = Completer(backend, state, trigger)
        self._detached: set[asyncio.Task[None]] = set()
        self._worker = asyncio.current_task()
        self.late = 0  # runs that could not start in time, because a handler blocked the event loop

    @property
    def released(self) -> Sequence[str]:
        """IDs of tasks that were returned to the queue."""
        return self._finisher.released

    def start(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        loop = asyncio.get_running_loop()
        begun = []
        for task in tasks:
            run = Run(task, self._handlers.get(task.name), self)
            if task.timeout_ms is not None:
                self._limit(run)
            self._state.hold(run)
            begun.append(run)
        self._state.publish()
        for run in begun:
            self._state.began(run)
            run.job = loop.create_task(self._work(run))

    def hand_back(self, tasks: Sequence[Task]) -> None:
        """Return tasks to the queue that were claimed too late to start."""
        for task in tasks:
            run = Run(task, None, self)
            run.owes_locks = False  # its position in the wait queues is for the next run
            self._state.hold(run)
            self._finisher.add(run, Released(RETURNED[StopReason.SHUTDOWN], has_begun=False))
        self._state.publish()

    def stop(self, run: Run, why: StopReason) -> None:
        """Tell a run to end; after a grace period it is detached.

        One whose store does not respond is not detached: if it cannot be ended, it keeps its task as long as no other
        worker has it, and its result counts.
        """
        if self._held.get(run.id) is not run or not run.end(why):
            return
        if run.began and why is StopReason.UNREACHABLE:
            log.warning("task.given_up", **_about(run), reason=why)
        elif run.began:
            self._timer.after(self._cancel_grace_s, partial(self._detach, run))
        else:
            self._ended(run, None)

    def stop_all(self, why: StopReason) -> None:
        for run in list(self._held.values()):
            self.stop(run, why)

    def detach_all(self) -> None:
        """Detach all runs that were told to end."""
        for run in list(self._held.values()):
            self._detach(run)

    def gone(self, runs: Mapping[str, Status | None]) -> None:
        """End runs that the store reports as over. A run that waits for its commit gets this result from the commit."""
        for run_id, status in runs.items():
            run = self._held.get(run_id)
            if run is not None and not run.finishing:
                if status is None:  # no ADE operation removes a running task
                    log.error("task.record_lost", **_about(run), hint="the store has lost it; enqueue it again")
                self.stop(run, StopReason.CANCELLED if status is Status.CANCELLED else StopReason.LOST)

    async def stop_committing(self) -> None:
        """Abandon outcomes that are not committed yet."""
        await self._finisher.close()

    async def close(self) -> None:
        """End the threads and processes of handlers."""
        await self._performer.close()

    def _limit(self, run: Run) -> None:
        limit_ms = run_timeout_ms(run.task) or 0
        run.alarm = self._timer.after(limit_ms / 1000, partial(self.stop, run, StopReason.TIMED_OUT))
        run.until_ms = time.monotonic_ns() // 1_000_000 + limit_ms + round(self._cancel_grace_s * 1000)

    async def _work(self, run: Run) -> None:
        run.began = True
        task = run.task
        writers = frozenset[str]() if task.review is None else writers_of(task)  # most tasks have no review
        current_run.set(RunReference(task.id, run.id, request_id(task), task.author_id, writers))
        outcome: Outcome | None = None
        try:
            outcome = await self._prepare(run)
            if outcome is None and run.stop is None:  # a preview in a thread could not be cancelled
                outcome = await self._performer.perform(run)
                if self._gates is not None and run.task.source == SYSTEM:
                    await self._gates.after(run, outcome)
        except asyncio.CancelledError:
            outcome = self._cancelled(run)
        except BaseException as error:
            outcome = failure_of(error)
        try:
            if self._probe.armed:
                await self._probe(PERFORMED)
        finally:  # a job that ended without this would hold its task indefinitely
            if not run.detached:
                self._ended(run, outcome)

    async def _prepare(self, run: Run) -> Outcome | None:
        """Acquire the locks of a run and check its approvals. Returns the outcome that replaces the run; None if it can
        start. If the store cannot be reached, the task is returned to the queue.
        """
        outcome, gates = None, self._gates
        try:
            if run.task.locks:
                outcome = await self._take_locks(run)
            if outcome is None and gates is not None and (checking := gates.check(run, self)) is not None:
                outcome = await checking
        except STORE_TROUBLE as error:
            return Released(f"it could not begin: {error.detail}", _TROUBLE_DELAY_MS, has_begun=False)
        except Exception as error:
            return structs.replace(failure_of(error), has_begun=False)
        if outcome is None and not self._state.reach(run, STARTED):
            return self._too_late()
        return outcome

    async def attempt(self, run: Run, handler: Handler) -> Outcome:
        """Preview a run before its handler is called. A preview is code of the task, and can block or kill the worker:
        from here on the run counts as started.
        """
        return await self._performer.attempt(run, handler) if self._state.reach(run, STARTED) else self._too_late()

    async def _take_locks(self, run: Run) -> Outcome | None:
        if self._state.reach(run, PREPARING):
            return await self._locks.take(run)
        run.owes_locks = False  # its position in the wait queues is for the next run
        return self._too_late()

    def _too_late(self) -> Outcome:
        """Return the outcome of a run whose task the watchdog has returned, because the event loop was blocked."""
        self.late += 1
        return Released(NOT_STARTED, has_begun=False)

    def _cancelled(self, run: Run) -> Outcome | None:
        """Return the outcome of a run whose handler raised CancelledError; None if it was told to end.

        If the worker was cancelled too, the program cancels all tasks of its loop: the run is returned to the queue.
        If its thread goes on, nothing is written, and the lease expires.
        """
        if run.stop is not None:
            return None
        if all(task is not None and task.cancelling() for task in (self._worker, run.job)):
            run.stop = StopReason.LOST if run.in_thread else StopReason.SHUTDOWN
            return None
        return own_cancellation()

    def _ended(self, run: Run, outcome: Outcome | None) -> None:
        self._state.performed(run)
        if run.alarm is not None:
            self._timer.cancel(run.alarm)
        verdict = _verdict(run, outcome)
        if verdict is None:
            log.info("task.stopped", **_about(run), reason=run.stop)
            self._finisher.drop(run)
            return
        if isinstance(verdict, Deferred):
            run.owes_locks = False  # the position in the wait queues remains
        self._finisher.add(run, verdict)
        self._trigger.room_freed()

    def _detach(self, run: Run) -> None:
        if run.stop is None or run.finishing or run.detached or self._held.get(run.id) is not run:
            return
        log.warning("task.detached", **_about(run), reason=run.stop)
        run.detached = True
        if run.job is not None:
            self._detached.add(run.job)
            run.job.add_done_callback(self._detached.discard)
            run.job.cancel()
        self._ended(run, None)


def _verdict(run: Run, outcome: Outcome | None) -> Outcome | None:
    """Return the outcome to commit for a run that ended like this; None if it must write nothing."""
    if run.stop in MUTE:
        return None
    if run.withheld is not None:
        return run.withheld
    if run.stop is StopReason.LOCK_LOST:  # whatever the outcome, nothing protected its work
        return lock_lost()
    if run.stop is None:
        return outcome or unwritable("the run ended without an outcome; middleware must return one")
    if isinstance(outcome, Succeeded | Deferred | Withheld):
        return outcome
    if run.stop in RETURNED:
        return Released(RETURNED[run.stop])
    return timed_out(run_timeout_ms(run.task) or 0)


def _about(run: Run) -> dict[str, Any]:
    return {"task_id": run.task.id, "attempt": run.task.attempt, "worker": run.task.worker_id}
