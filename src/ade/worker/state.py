"""The state that the parts of a worker share: the runs it holds, and what triggers the next claim."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from ade.tasks.handlers import HandlerMode
from ade.worker.backend import WorkerOptions
from ade.worker.capacity import AgentCapacity
from ade.worker.run import Run
from ade.worker.shared_memory import CLAIMED, HeldRun, SharedLeasePage, entry_at, entry_of, step_of
from ade.worker.timer import SharedTimer

LINGER_S = 0.002  # how long a freed slot waits for others, so that a backlog is claimed in batches


class WorkerState:
    """The runs of a worker, from claim to commit, and its progress.

    Used on the event loop; the lease thread also reads it.
    """

    def __init__(self, options: WorkerOptions, *, now: int = 0, page: SharedLeasePage | None = None) -> None:
        self._options = options
        self._page = page  # where the watchdog reads which runs are held; None: there is no watchdog
        self._limits = {
            HandlerMode.ASYNC: options.concurrency,
            HandlerMode.THREAD: min(options.threads, options.concurrency),
            HandlerMode.PROCESS: min(options.child_limit, options.concurrency),
        }
        self._performing: Counter[HandlerMode] = Counter()
        self._emptied = asyncio.Event()
        self.held: dict[str, Run] = {}
        self.performing = 0  # in all modes
        self.wake = asyncio.Event()  # there may be a task to claim
        self.claiming: Sequence[str] = ()  # run IDs of the claim in progress; also read by the lease thread
        self._claimed_ms = 0  # when that claim was sent
        self.progress_at = now  # when the claim loop last completed a round, on the store's clock
        self.draining = False

    def room(self, mode: HandlerMode) -> int:
        """Return how many more runs of this mode can start. A run that waits for its commit counts half.

        While a commit is pending, a small amount of room counts as none: the commit will free more, and small claims
        would stay small, because runs that start together end together.
        """
        concurrency = self._options.concurrency
        anywhere = min(concurrency - self.performing, 2 * concurrency - len(self.held))
        if anywhere < concurrency // 2 and len(self.held) > self.performing:
            return 0
        return min(anywhere, self._limits[mode] - self._performing[mode])

    def to_renew(self, *, now_ms: int, silent_ms: int) -> dict[str, str]:
        """Return the runs worth renewing (run ID -> task ID) for a loop that last ran `silent_ms` ago. Thread-safe.

        The loop ends a run at its timeout plus the grace period. A run held beyond that hangs, and so does the loop:
        another worker can have the task. An outcome that waits for its commit is kept while the loop is alive.
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

    def claim(self, run_ids: Sequence[str]) -> None:
        """Register the run IDs of a claim before it is sent: from its commit on, they may have leases."""
        self.claiming = run_ids
        if self._page is not None:
            self._claimed_ms = time.monotonic_ns() // 1_000_000
            self._page.write_claim(run_ids, self._claimed_ms)

    def hold(self, run: Run) -> None:
        """Add a claimed run."""
        if self._page is not None:
            run.claimed_ms = self._claimed_ms
            run.entry = entry_of(HeldRun(run.id, run.until_ms, run.task.id, run.claimed_ms, CLAIMED))
        self.held[run.id] = run

    def publish(self) -> None:
        """Write the held runs for the watchdog, before a handler can block the interpreter. No claim is in progress."""
        self.claiming = ()
        if self._page is not None:
            entries = []
            for place, run in enumerate(self.held.values()):
                run.place = place
                entries.append(run.entry)
            self._page.write_runs(entries)

    def reach(self, run: Run, step: int) -> bool:
        """Record how far a run has come. False if the watchdog has returned its task, so that it must not start."""
        page, before = self._page, run.entry
        if page is None or step_of(before) == step:  # what has started is not revoked
            return True
        run.entry = entry_at(before, step)
        page.write_step(run.place, step)
        if run.claimed_ms <= page.revoked_ms():  # read last: see `Watch`
            run.entry = before  # one that holds locks is not returned by the watchdog, but by this worker
            page.write_step(run.place, step_of(before))
            return False
        return True

    def began(self, run: Run) -> None:
        self._performing[run.mode] += 1
        self.performing += 1

    def performed(self, run: Run) -> None:
        self._performing[run.mode] -= 1
        self.performing -= 1

    def drop(self, run: Run) -> None:
        """Remove a finished run, whatever its outcome."""
        self.held.pop(run.id, None)
        if not self.held:
            self._emptied.set()

    def abandon(self) -> None:
        """Remove all runs, so that neither this process nor the watchdog renews them."""
        self.held.clear()
        self.publish()

    async def emptied(self) -> None:
        """Wait until no run is held."""
        while self.held:
            self._emptied.clear()
            await self._emptied.wait()


class ClaimTrigger:
    """Decides what wakes the poller. The poller sets the flags for what it waits for."""

    def __init__(
        self, state: WorkerState, timer: SharedTimer, concurrency: int, capacity: AgentCapacity | None = None
    ) -> None:
        self._state = state
        self._wake = state.wake
        self._timer = timer
        self._concurrency = concurrency
        self._enough = max(concurrency // 4, 1)
        self._capacity = capacity  # of the worker's agent, if it has one
        self._lingering = False
        self.starved = False  # a claim returned less than requested: new work must wake the poller
        self.eager = False  # some mode could take more: new room must wake the poller
        self.capped = False  # the agent had no more units: a freed unit must wake the poller
        self.freed = False  # units were freed since the round began
        self.hinted = False  # new work was announced since the round began

    def begin_round(self) -> None:
        """Reset the flags: the poller polls now and waits for nothing."""
        self.starved = self.eager = self.capped = self.freed = self.hinted = False

    def work_announced(self) -> None:
        """Wake a poller that has room for new work; with a known backlog, new work changes nothing."""
        self.hinted = True
        if self.starved:
            self._wake.set()

    def units_freed(self) -> None:
        """Record that units of the agent were released, or that its capacity increased."""
        self.freed = True
        if self.capped:
            self._wake.set()

    def room_freed(self) -> None:
        """Record that a run has ended or was committed."""
        if self._capacity is not None:
            self._capacity.look()
            if self.capped:  # then room is useful only with a unit
                if self._capacity.has_over:
                    self._wake.set()
                return
        if not self.eager or self._wake.is_set():
            return
        performing = self._state.performing
        if not performing or self._concurrency - performing >= self._enough:
            self._wake.set()
        elif not self._lingering:
            self._lingering = True
            self._timer.after(LINGER_S, self._end_linger)

    def settled(self) -> None:
        """Wake a starved poller: a commit may have unblocked dependent tasks."""
        if self.starved:
            self._wake.set()

    def _end_linger(self) -> None:
        self._lingering = False
        self._wake.set()
