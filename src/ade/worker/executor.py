"""All runs this worker holds, from claim to commit: started, told to end, and let go of when they will not."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ade.accounts.model import SYSTEM
from ade.logs import Log
from ade.tasks.decisions import run_timeout_ms
from ade.tasks.handlers import HandlerMode, Registry
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.outcomes import Deferred, Outcome, Released, Succeeded, Withheld
from ade.worker.failures import failure_of, lock_lost, timed_out, unwritable
from ade.worker.handler_call import HandlerInvoker, own_cancellation
from ade.worker.instrumentation import PERFORMED, WorkerProbe
from ade.worker.options import WorkerOptions
from ade.worker.run import MUTE, Run, StopReason
from ade.worker.shared_memory import HeldRun, entry_of
from ade.worker.timer import SharedTimer

log = Log("ade.worker")
RETURNED = "the worker was shut down"


class RunExecutor:
    """`finish` is given each run that ends, with its outcome; the other callbacks tell of room, commits and starts."""

    def __init__(
        self,
        registry: Registry,
        performer: HandlerInvoker,
        timer: SharedTimer,
        options: WorkerOptions,
        probe: WorkerProbe,
    ) -> None:
        self._handlers = registry.by_name
        self._performer = performer
        self._timer = timer
        self._options = options
        self._probe = probe
        self._limits = {
            HandlerMode.ASYNC: options.concurrency,
            HandlerMode.THREAD: min(options.threads, options.concurrency),
            HandlerMode.PROCESS: min(options.child_limit, options.concurrency),
        }
        self._performing: Counter[HandlerMode] = Counter()
        self.performing = 0  # in all modes together
        self._detached: set[asyncio.Task[None]] = set()
        self._emptied = asyncio.Event()
        self.held: dict[str, Run] = {}
        self.finish: Callable[[Run, Outcome], None] = _nobody_finishes
        self.take_locks: Callable[[Run], Awaitable[Deferred | None]] = _nobody_has_any
        self.let_go: Callable[[Run, Callable[[], None]], None] = _nobody_locks
        self.check: Callable[[Run], Awaitable[Outcome | None] | None] = _nobody_checks
        self.after: Callable[[Run, Outcome], Awaitable[None]] = _nobody_follows
        self.on_room: Callable[[], None] = _nobody_waits
        self.on_settled: Callable[[], None] = _nobody_waits
        self.on_change: Callable[[Iterable[Run]], None] = _nobody_watches

    def to_renew(self, *, now_ms: int, silent_ms: int) -> dict[str, str]:
        """Run id -> task id of the runs worth keeping for a loop that last went round so long ago. For any thread.

        The loop ends a run at its time-out plus the time it gets to end. One that is held beyond that hangs, and so
        does the loop: another worker may have it. An outcome that waits for its commit is kept while the loop lives.
        """
        if silent_ms >= self._options.guard_silence_s * 1000:
            return {}
        is_alive = silent_ms < self._options.lease_ms
        runs = list(self.held.values())
        return {
            run.id: run.task.id
            for run in runs
            if not run.until_ms or now_ms < run.until_ms or (run.finishing and is_alive)
        }

    def room(self, mode: HandlerMode) -> int:
        """How many more runs of this mode there may be. What waits for its commit counts for half.

        While something waits for that, a little room is none: the commit makes more of it at once, and claims that were
        small once would stay small, because what begins together ends together.
        """
        concurrency = self._options.concurrency
        anywhere = min(concurrency - self.performing, 2 * concurrency - len(self.held))
        if anywhere < concurrency // 2 and len(self.held) > self.performing:
            return 0
        return min(anywhere, self._limits[mode] - self._performing[mode])

    def start(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        loop = asyncio.get_running_loop()
        begun = []
        for task in tasks:
            run = Run(task, self._handlers.get(task.name))
            if task.timeout_ms is not None:
                self._limit(run)
            self._hold(run)
            begun.append(run)
        self.on_change(self.held.values())  # before any handler can take hold of the interpreter
        for run in begun:
            self._performing[run.mode] += 1
            self.performing += 1
            run.job = loop.create_task(self._work(run))

    def hand_back(self, tasks: Sequence[Task]) -> None:
        """Claimed when it was too late to start them."""
        for task in tasks:
            run = Run(task, None)
            run.owes_locks = False  # its place in their lines is for the next run
            self._hold(run)
            self.finish(run, Released(RETURNED))

    def stop(self, run: Run, why: StopReason) -> None:
        """Tell a run to end; it gets some time for it, then it is let go of."""
        if self.held.get(run.id) is not run or not run.end(why):
            return
        if run.began:
            self._timer.after(self._options.cancel_grace_s, partial(self._detach, run))
        else:
            self._ended(run, None)

    def stop_all(self, why: StopReason) -> None:
        for run in list(self.held.values()):
            self.stop(run, why)

    def detach_all(self) -> None:
        """Wait no longer for those that were told to end."""
        for run in list(self.held.values()):
            self._detach(run)

    def gone(self, runs: Mapping[str, Status | None]) -> None:
        """The store says these runs are over. One that waits for its commit will hear so from the commit."""
        for run_id, status in runs.items():
            run = self.held.get(run_id)
            if run is not None and not run.finishing:
                if status is None:  # nothing that ADE does removes a running task
                    log.error("task.record_lost", **_about(run), hint="the store has lost it; enqueue it again")
                self.stop(run, StopReason.CANCELLED if status is Status.CANCELLED else StopReason.LOST)

    def lose(self, run: Run) -> None:
        """Somebody noticed that the run no longer holds its task."""
        self.stop(run, StopReason.LOST)

    def lose_lock(self, run: Run) -> None:
        """Nothing protects any more what the run does."""
        self.stop(run, StopReason.LOCK_LOST)

    def settled(self, runs: Sequence[Run]) -> None:
        """Their outcomes are committed, or refused for good."""
        for run in runs:
            self.held.pop(run.id, None)
            if run.uses_locks:
                self.let_go(run, _nobody_waits)
        self._after_release()
        self.on_settled()

    async def emptied(self) -> None:
        """Wait until nothing is held any more."""
        while self.held:
            self._emptied.clear()
            await self._emptied.wait()

    def _hold(self, run: Run) -> None:
        run.entry = entry_of(HeldRun(run.id, run.until_ms, run.task.id))
        self.held[run.id] = run

    def _limit(self, run: Run) -> None:
        limit_ms = run_timeout_ms(run.task) or 0
        run.alarm = self._timer.after(limit_ms / 1000, partial(self.stop, run, StopReason.TIMED_OUT))
        run.until_ms = time.monotonic_ns() // 1_000_000 + limit_ms + round(self._options.cancel_grace_s * 1000)

    async def _work(self, run: Run) -> None:
        run.began = True
        outcome: Outcome | None = None
        try:
            if run.task.locks:
                outcome = await self.take_locks(run)
            if outcome is None and (checking := self.check(run)) is not None:
                outcome = await checking
            if outcome is None:
                outcome = await self._performer.perform(run)
                if run.task.source == SYSTEM:
                    await self.after(run, outcome)
        except asyncio.CancelledError:
            if run.stop is None:  # by itself, or with the whole loop: then nobody is left to commit it
                outcome = own_cancellation()
        except BaseException as error:
            outcome = failure_of(error)
        try:
            if self._probe.armed:
                await self._probe(PERFORMED)
        finally:  # a job that ended without this would keep its task for ever
            if not run.detached:
                self._ended(run, outcome)

    def _ended(self, run: Run, outcome: Outcome | None) -> None:
        self._performing[run.mode] -= 1
        self.performing -= 1
        if run.alarm is not None:
            self._timer.cancel(run.alarm)
        verdict = _verdict(run, outcome)
        if isinstance(verdict, Deferred):
            run.owes_locks = False  # the place in their lines stays
        if verdict is not None:
            self._finish(run, verdict)
            self.on_room()
            return
        log.info("task.stopped", **_about(run), reason=run.stop)
        self.held.pop(run.id, None)
        if run.uses_locks:
            self.let_go(run, _nobody_waits)
        self._after_release()

    def _finish(self, run: Run, verdict: Outcome) -> None:
        """What was done under locks is committed under them. A run that did nothing lets go first: the next one may ask
        under the same name as soon as the commit is there, and must not lose what it gets to a release that is late."""
        if isinstance(verdict, Succeeded) or not run.uses_locks:
            self.finish(run, verdict)
        else:
            run.finishing = True
            self.let_go(run, partial(self.finish, run, verdict))

    def _detach(self, run: Run) -> None:
        if run.stop is None or run.finishing or run.detached or self.held.get(run.id) is not run:
            return
        log.warning("task.detached", **_about(run), reason=run.stop)
        run.detached = True
        if run.job is not None:
            self._detached.add(run.job)
            run.job.add_done_callback(self._detached.discard)
            run.job.cancel()
        self._ended(run, None)

    def _after_release(self) -> None:
        self.on_room()
        if not self.held:
            self._emptied.set()


def _verdict(run: Run, outcome: Outcome | None) -> Outcome | None:
    """What to commit for a run that ended like this; None when it must write nothing."""
    if run.stop in MUTE:
        return None
    if run.withheld is not None:
        return run.withheld
    if run.stop is StopReason.LOCK_LOST:  # whatever it says: nothing protected what it did
        return lock_lost()
    if run.stop is None:
        return outcome or unwritable("the run ended without an outcome; middleware must return one")
    if isinstance(outcome, Succeeded | Deferred | Withheld):
        return outcome
    if run.stop is StopReason.SHUTDOWN:
        return Released(RETURNED)
    return timed_out(run_timeout_ms(run.task) or 0)


def _about(run: Run) -> dict[str, Any]:
    return {"task_id": run.task.id, "attempt": run.task.attempt, "worker": run.task.worker_id}


def _nobody_finishes(run: Run, outcome: Outcome) -> None: ...


def _nobody_waits() -> None: ...


async def _nobody_has_any(run: Run) -> Deferred | None:
    return None


def _nobody_checks(run: Run) -> None:
    return None


async def _nobody_follows(run: Run, outcome: Outcome) -> None: ...


def _nobody_locks(run: Run, then: Callable[[], None]) -> None:
    then()


def _nobody_watches(runs: Iterable[Run]) -> None: ...
