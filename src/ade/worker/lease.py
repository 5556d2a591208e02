"""The lease thread: renews the leases of all runs, so that a blocked event loop does not lose them."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from ade.errors import AdeError
from ade.logs import Log
from ade.stores.ports import Renewal
from ade.tasks.lifecycle import Status
from ade.worker.executor import RunExecutor
from ade.worker.run import StopReason
from ade.worker.state import WorkerState

_BREATH_S = 0.05  # between two renewals, however often they are requested
log = Log("ade.worker")


class LeaseBackend(Protocol):
    """Where the lease thread renews."""

    def renew(self, held: Mapping[str, str], claiming: Sequence[str] = ()) -> Renewal: ...

    def guarded_at(self) -> float:
        """Return when the watchdog last renewed instead of the thread."""


class LeasedRuns(Protocol):
    """The runs whose leases are renewed. Called from the lease thread."""

    def to_renew(self) -> Mapping[str, str]:
        """Return run ID -> task ID."""

    def claiming(self) -> Sequence[str]:
        """Return the run IDs of the claim in progress."""

    def gone(self, lost: Mapping[str, Status | None]) -> None:
        """Handle runs that have lost their leases."""

    def overdue(self) -> None:
        """Give up all runs: their leases may expire before the store responds."""

    def give_up(self, run_ids: Collection[str]) -> None:
        """Give these runs up: their part of the store does not respond."""


class LeaseThread:
    """Renews until stopped, and reports lost leases to the runs."""

    def __init__(
        self,
        backend: LeaseBackend,
        runs: LeasedRuns,
        *,
        heartbeat_s: float,
        lease_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._runs = runs
        self._heartbeat_s = heartbeat_s
        self._patience_s = lease_s - min(heartbeat_s, lease_s / 4)  # after this time a run must be considered lost
        self._clock = clock
        self._asked = threading.Event()
        self._stopping = False
        self._failures = 0
        self._unreached: dict[str, float] = {}  # run whose part of the store does not respond -> its last renewal
        self._recovered_at = float("-inf")  # when the first renewal after a failed one succeeded
        self.renewed_at = clock()
        self._thread = threading.Thread(target=self._run, name="ade-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def kick(self) -> None:
        """Renew now: a task may have been cancelled."""
        self._asked.set()

    def stop(self, *, wait: bool = True) -> None:
        self._stopping = True
        self._asked.set()
        if wait and self._thread.is_alive():
            self._thread.join(timeout=self._heartbeat_s + 1)

    def is_late(self) -> bool:
        """Whether two heartbeats were missed, for instance because C code held the interpreter."""
        return self._clock() - self.renewed_at > 2 * self._heartbeat_s

    def may_judge(self) -> bool:
        """Whether this worker can decide that leases of others are lost. After store trouble they renew first."""
        return not self.is_late() and self._clock() - self._recovered_at >= self._heartbeat_s

    def is_overdue(self) -> bool:
        """Whether the last renewal is so old that the leases may expire before the next one."""
        return self._clock() - max(self.renewed_at, self._backend.guarded_at()) > self._patience_s

    def beat(self) -> None:
        """Renew once. The lease counts from before the call: the store may have renewed at any time since."""
        began = self._clock()
        try:
            renewal = self._backend.renew(self._runs.to_renew(), self._runs.claiming())
            if renewal.gone:
                self._runs.gone(renewal.gone)
            if renewal.error is not None:
                raise renewal.error
        except Exception as error:  # whatever the error, the lease expires
            self._failures += 1
            is_fault = not isinstance(error, AdeError)
            log.warning("lease.not_renewed", error=str(error), failures=self._failures, exc_info=is_fault)
            if self.is_overdue():
                self._runs.overdue()
            return
        if self._failures or (self._unreached and not renewal.unreached):
            self._failures, self._recovered_at = 0, self._clock()
        self._note_unreached(renewal.unreached)
        self.renewed_at = began

    def _note_unreached(self, run_ids: Collection[str]) -> None:
        """Give up the runs whose part of the store has not responded for too long. The others go on."""
        self._unreached = {run_id: self._unreached.get(run_id, self.renewed_at) for run_id in run_ids}
        now = self._clock()
        late = [run_id for run_id, since in self._unreached.items() if now - since > self._patience_s]
        if run_ids:
            log.warning("lease.not_renewed", error="a part of the store does not respond", runs=len(run_ids))
        if late:
            self._runs.give_up(late)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.beat()
            except Exception:  # the thread must live as long as the worker
                log.exception("lease.beat_failed")
            self._asked.wait(self._heartbeat_s / 4 if self._failures or self._unreached else self._heartbeat_s)
            if self._asked.is_set():
                self._asked.clear()
                time.sleep(_BREATH_S)


class RunsOnLoop:
    """The event loop's side of the leases: handles on the loop what the thread reports, and records when the loop last
    ran.
    """

    def __init__(self, runs: RunExecutor, state: WorkerState) -> None:
        self._runs = runs
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._went_round_ms = _now_ms()

    def to_renew(self) -> Mapping[str, str]:
        now_ms = _now_ms()
        return self._state.to_renew(now_ms=now_ms, silent_ms=now_ms - self._went_round_ms)

    def claiming(self) -> Sequence[str]:
        return self._state.claiming

    def gone(self, lost: Mapping[str, Status | None]) -> None:
        self._loop.call_soon_threadsafe(self._runs.gone, lost)

    def overdue(self) -> None:
        self._loop.call_soon_threadsafe(self._runs.stop_all, StopReason.UNREACHABLE)

    def give_up(self, run_ids: Collection[str]) -> None:
        self._loop.call_soon_threadsafe(self._give_up, run_ids)

    def _give_up(self, run_ids: Collection[str]) -> None:
        for run_id in run_ids:
            if (run := self._state.held.get(run_id)) is not None:
                self._runs.stop(run, StopReason.UNREACHABLE)

    async def watch(self, lease: LeaseThread, every_s: float) -> None:
        """Record that the loop is not blocked, and detect renewals that hang instead of failing.

        It takes two checks, because after a block the lease thread runs first.
        """
        was_overdue = False
        while True:
            self._went_round_ms = _now_ms()
            await asyncio.sleep(every_s)
            is_overdue = lease.is_overdue()
            if is_overdue and was_overdue and self._state.held:
                log.error("lease.overdue", running=len(self._state.held))
                self._runs.stop_all(StopReason.UNREACHABLE)
            was_overdue = is_overdue


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
