"""What the parts of a worker share: the runs it holds, and when to poll for more."""

import asyncio
from collections import Counter

from ade.tasks.handlers import HandlerMode
from ade.worker.backend import WorkerOptions
from ade.worker.capacity import AgentCapacity
from ade.worker.run import Run
from ade.worker.shared_memory import HeldRun, SharedLeasePage, entry_of
from ade.worker.timer import SharedTimer

LINGER_S = 0.002  # how long a freed slot waits for company, so that a backlog is claimed in batches


class WorkerState:
    """The runs of a worker, from claim to commit, and its progress.

    Used on the event loop; the lease thread reads it too.
    """

    def __init__(self, options: WorkerOptions, *, now: int = 0, page: SharedLeasePage | None = None) -> None:
        self._options = options
        self._page = page  # where the guardian reads which runs are held; None: there is no guardian
        self._limits = {
            HandlerMode.ASYNC: options.concurrency,
            HandlerMode.THREAD: min(options.threads, options.concurrency),
            HandlerMode.PROCESS: min(options.child_limit, options.concurrency),
        }
        self._performing: Counter[HandlerMode] = Counter()
        self._emptied = asyncio.Event()
        self.held: dict[str, Run] = {}
        self.performing = 0  # in all modes together
        self.wake = asyncio.Event()  # there may be something to claim
        self.progress_at = now  # when the claim loop last went round, as the store tells the time
        self.draining = False

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

    def hold(self, run: Run) -> None:
        """A run was claimed."""
        if self._page is not None:
            run.entry = entry_of(HeldRun(run.id, run.until_ms, run.task.id))
        self.held[run.id] = run

    def publish(self) -> None:
        """Write the held runs for the guardian, before any handler can block the interpreter."""
        if self._page is not None:
            self._page.write_runs([run.entry for run in self.held.values()])

    def began(self, run: Run) -> None:
        self._performing[run.mode] += 1
        self.performing += 1

    def performed(self, run: Run) -> None:
        self._performing[run.mode] -= 1
        self.performing -= 1

    def drop(self, run: Run) -> None:
        """The run is over, whatever came of it."""
        self.held.pop(run.id, None)
        if not self.held:
            self._emptied.set()

    async def emptied(self) -> None:
        """Wait until nothing is held any more."""
        while self.held:
            self._emptied.clear()
            await self._emptied.wait()


class ClaimTrigger:
    """Decides what wakes the poller up. The poller sets the flags for what it waits for."""

    def __init__(
        self, state: WorkerState, timer: SharedTimer, concurrency: int, capacity: AgentCapacity | None = None
    ) -> None:
        self._state = state
        self._wake = state.wake
        self._timer = timer
        self._concurrency = concurrency
        self._enough = max(concurrency // 4, 1)
        self._capacity = capacity  # of the agent the worker works for, if it works for one
        self._lingering = False
        self.starved = False  # some claim brought less than it asked for: new work must wake us
        self.eager = False  # some mode could take more: new room must wake us
        self.capped = False  # the agent had no more units: one that comes free must wake us
        self.freed = False  # units came free since the round began
        self.hinted = False  # new work was announced since the round began

    def begin_round(self) -> None:
        """The poller polls now, and waits for nothing."""
        self.starved = self.eager = self.capped = self.freed = self.hinted = False

    def work_announced(self) -> None:
        """New work wakes a poller that has room for it; with a backlog in sight it is no news."""
        self.hinted = True
        if self.starved:
            self._wake.set()

    def units_freed(self) -> None:
        """Units of the agent were given back, or it may do more."""
        self.freed = True
        if self.capped:
            self._wake.set()

    def room_freed(self) -> None:
        """A run has ended, or was committed."""
        if self._capacity is not None:
            self._capacity.look()
            if self.capped:  # then room is of use only with a unit
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
        """What was committed may have let others go ahead: tasks that waited for it."""
        if self.starved:
            self._wake.set()

    def _end_linger(self) -> None:
        self._lingering = False
        self._wake.set()
