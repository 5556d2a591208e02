"""Renews the leases of all runs from a thread of its own, so that a blocked event loop loses nothing."""

import threading
import time
from collections.abc import Callable, Mapping

from ade.errors import AdeError
from ade.logs import Log
from ade.stores.ports import Renewal
from ade.tasks.lifecycle import Status

_BREATH_S = 0.05  # between two renewals, however often they are asked for
log = Log("ade.worker")


class LeaseThread:
    """Beats until stopped. What it learns is handed to `on_gone` and `on_overdue`, on this thread."""

    def __init__(
        self,
        *,
        renew: Callable[[Mapping[str, str]], Renewal],
        held: Callable[[], Mapping[str, str]],  # run id -> task id
        on_gone: Callable[[Mapping[str, Status | None]], None],
        on_overdue: Callable[[], object],
        on_beat: Callable[[], None],
        heartbeat_s: float,
        lease_s: float,
        guarded_at: Callable[[], float] = lambda: 0.0,  # when a guardian last renewed in our place
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renew = renew
        self._held = held
        self._on_gone = on_gone
        self._on_overdue = on_overdue
        self._on_beat = on_beat
        self._heartbeat_s = heartbeat_s
        self._patience_s = lease_s - min(heartbeat_s, lease_s / 4)  # then a run must be taken for lost
        self._guarded_at = guarded_at
        self._clock = clock
        self._asked = threading.Event()
        self._stopping = False
        self._failures = 0
        self.renewed_at = clock()
        self._thread = threading.Thread(target=self._run, name="ade-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def kick(self) -> None:
        """Renew now: something may have been cancelled."""
        self._asked.set()

    def stop(self) -> None:
        self._stopping = True
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._heartbeat_s + 1)

    def is_late(self) -> bool:
        """Whether two beats have been missed, for instance because something held the interpreter."""
        return self._clock() - self.renewed_at > 2 * self._heartbeat_s

    def is_overdue(self) -> bool:
        """Whether nobody has renewed for so long that the leases may be gone before the next chance."""
        return self._clock() - max(self.renewed_at, self._guarded_at()) > self._patience_s

    def beat(self) -> None:
        """One renewal. The lease is counted from before the call, which is when the store may have done it."""
        began = self._clock()
        try:
            gone = self._renew(self._held()).gone
        except Exception as error:  # whatever it is, the lease runs out
            self._failures += 1
            is_fault = not isinstance(error, AdeError)
            log.warning("lease.not_renewed", error=str(error), failures=self._failures, exc_info=is_fault)
            if self.is_overdue():
                self._on_overdue()
            return
        self._failures = 0
        self.renewed_at = began
        self._on_beat()
        if gone:
            self._on_gone(gone)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.beat()
            except Exception:  # the thread must live as long as the worker
                log.exception("lease.beat_failed")
            self._asked.wait(self._heartbeat_s / 4 if self._failures else self._heartbeat_s)
            if self._asked.is_set():
                self._asked.clear()
                time.sleep(_BREATH_S)
