"""The completer: keeps each outcome until the backend has confirmed it, and only then drops the run."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Sequence
from functools import partial

from ade.logs import Log
from ade.tasks.outcomes import Outcome, Succeeded
from ade.worker.backend import Ended, WorkerBackend
from ade.worker.run import Run
from ade.worker.state import ClaimTrigger, WorkerState

_AGAIN_S = 0.5  # before an outcome is sent again to a part of the store that does not respond
log = Log("ade.worker")


class Completer:
    """Sends outcomes to the backend, in one call at a time or in several, as the backend requires."""

    def __init__(self, backend: WorkerBackend, state: WorkerState, trigger: ClaimTrigger) -> None:
        self._backend = backend
        self._locks = backend.locks
        self._most = backend.finishes_at_once
        self._state = state
        self._trigger = trigger
        self._waiting: deque[Ended] = deque()
        self._lanes: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._later: list[Ended] = []  # outcomes whose part of the store does not respond
        self._again: asyncio.TimerHandle | None = None
        self._context = contextvars.copy_context()  # a lane must not inherit the context of a run
        self.released: list[str] = []  # IDs of tasks that were returned to the queue

    def add(self, run: Run, outcome: Outcome) -> None:
        """Complete a run. Work done under locks is committed before the locks are released.

        A run that did not succeed releases them first: the next run can acquire them under the same ID as soon as the
        commit is done, and must not lose them to a late release.
        """
        run.finishing = True
        if isinstance(outcome, Succeeded) or not run.uses_locks:
            self._enqueue(run, outcome)
        else:
            self._locks.end(run, partial(self._enqueue, run, outcome))

    def drop(self, run: Run) -> None:
        """Drop a run without writing anything."""
        self._let_go(run)
        self._trigger.room_freed()

    async def close(self) -> None:
        """Abandon outcomes that are not confirmed yet."""
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        for run, _ in (*self._waiting, *self._later):
            self._let_go(run)
        self._waiting.clear()
        self._later.clear()
        lanes = list(self._lanes)
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)

    def _enqueue(self, run: Run, outcome: Outcome) -> None:
        if self._is_closed:
            self._let_go(run)
        else:
            self._waiting.append((run, outcome))
            self._start_lane()

    def _start_lane(self) -> None:
        if self._waiting and len(self._lanes) < self._most:
            loop = asyncio.get_running_loop()
            lane = loop.create_task(self._work(), name="ade-finish", context=self._context.copy())
            self._lanes.add(lane)
            lane.add_done_callback(self._lane_ended)

    def _lane_ended(self, lane: "asyncio.Task[None]") -> None:
        """Replace a lane that was cancelled, also before its first step, or that failed."""
        self._lanes.discard(lane)
        self._start_lane()

    async def _work(self) -> None:
        """Finish waiting outcomes, including those added meanwhile."""
        lane = asyncio.current_task()
        assert lane is not None
        try:
            while self._waiting:
                await self._finish(self._next(), lane)
        finally:
            self._lanes.discard(lane)

    def _next(self) -> list[Ended]:
        if self._most > 1:
            count = min(len(self._waiting), self._backend.finishes_together)
            return [self._waiting.popleft() for _ in range(count)]
        batch = list(self._waiting)
        self._waiting.clear()
        return batch

    async def _finish(self, batch: Sequence[Ended], lane: "asyncio.Task[None]") -> None:
        """Finish a batch. Whatever the backend raises, its runs are not held any longer, so that their leases expire.

        A lane that the program cancelled, with all tasks of its loop, passes its batch to the next lane.
        """
        try:
            finished = await self._backend.finish(batch)
            self.released += finished.released
            if finished.unanswered and not self._is_closed:
                batch = self._postpone(batch, finished.unanswered)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and lane.cancelling():
                if not self._is_closed:
                    self._waiting.extendleft(reversed(batch))
                    batch = ()
                raise
            log.exception("commit.failed", task_ids=[run.task.id for run, _ in batch])
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        finally:
            for run, _ in batch:
                self._let_go(run)
            self._trigger.room_freed()
            self._trigger.settled()

    def _postpone(self, batch: Sequence[Ended], unanswered: Sequence[Ended]) -> list[Ended]:
        """Send outcomes again after a pause, while those of other parts of the store go on. Returns the settled."""
        self._later += unanswered
        if self._again is None:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._send_again)
        left = {run.id for run, _ in unanswered}
        return [(run, outcome) for run, outcome in batch if run.id not in left]

    def _send_again(self) -> None:
        self._again = None
        self._waiting.extend(self._later)
        self._later.clear()
        self._start_lane()

    def _let_go(self, run: Run) -> None:
        self._state.drop(run)
        if run.uses_locks:
            self._locks.end(run, _nothing_follows)


def _nothing_follows() -> None: ...
