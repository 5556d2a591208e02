"""The watchdog: a separate process that renews a worker's leases while the worker cannot.

C code that holds the interpreter lock for a minute also stops the worker's lease thread. The watchdog reads the time
of the last renewal from a shared page. When it is too old while the worker is alive, the watchdog renews instead. It
opens the store only then, and ends with the worker. When a handler blocks the event loop, the watchdog returns to the
queue the tasks that the worker has claimed and cannot start. Finally it kills the processes that the worker's handlers
have left behind.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from ade.worker.shared_memory import CLAIMED, LeasePageSnapshot, NamedTuple, SharedLeasePage

TYPE_CHECKING = False  # as in `typing`, which is large

if TYPE_CHECKING:
    import subprocess
    from typing import Protocol

    class Renewer(Protocol):
        """What the watchdog does on the store instead of its worker."""

        def renew(self, runs: Mapping[str, str], claiming: Sequence[str]) -> object:
            """Renew the leases of runs (run ID -> task ID), and those of a claim in progress."""

        def give_back(self, runs: Mapping[str, str], claiming: Sequence[str]) -> object:
            """Return tasks to the queue that have not started: held ones, and those of a claim in progress."""


# Processes that end with their parent.


_PR_SET_PDEATHSIG = 1


def import_path() -> str:
    """Return a PYTHONPATH with which a child process can import everything this process can."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109  # pathlib is large


def die_with_parent(parent_pid: int, *, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent dies; exit now if the parent is already dead.

    The kernel watches the thread that started this process, so parents start children from a long-lived thread. On
    platforms other than Linux, the caller's pipe to the parent must serve this purpose.
    """
    watch_parent_exit(by)
    if os.getppid() != parent_pid:
        os._exit(1)


def watch_parent_exit(by: signal.Signals) -> None:
    """Only request the signal, for a process that still has work to do when its parent dies."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)


_LOOK_MS = 500  # how often the page is read at least
_BLOCKED_MS = 1_500  # after this time an event loop counts as blocked
_CLAIM_LOOK_MS = 2_000  # how often the store is asked what became of a claim in progress


class WatchdogConfig(NamedTuple):
    """Configuration sent to the watchdog at its start, as one line of text; a parser would cost memory."""

    worker_pid: int
    descriptor: int
    capacity: int
    heartbeat_ms: int
    silence_ms: int  # how long to renew runs without a timeout for a worker that sends no heartbeats
    renewer: str
    about: str  # JSON, so it contains neither a tab nor a line break

    def line(self) -> str:
        return "\t".join(str(field) for field in self) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "WatchdogConfig":
        *numbers, renewer, about = line.rstrip("\n").split("\t")
        pid, descriptor, capacity, heartbeat_ms, silence_ms = (int(number) for number in numbers)
        return cls(pid, descriptor, capacity, heartbeat_ms, silence_ms, renewer, about)


class WatchdogSpec(NamedTuple):
    """How a watchdog renews: it imports `renewer` ("module:function") and calls it with a JSON object that contains
    the worker's record, lease_ms, and `store`, the location of the store.
    """

    renewer: str
    store: str


class WatchdogProcess:
    """The watchdog process, as seen by the worker."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @classmethod
    def start(cls, brief: WatchdogConfig, descriptor: int) -> "WatchdogProcess":
        import subprocess

        environment = {**os.environ, "PYTHONPATH": import_path()}
        process = subprocess.Popen(
            [sys.executable, "-P", "-S", "-m", "ade.worker.watchdog"],
            stdin=subprocess.PIPE,
            pass_fds=(descriptor,),
            start_new_session=True,
            env=environment,
        )
        assert process.stdin is not None
        process.stdin.write(brief.line().encode())
        process.stdin.flush()
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Close the pipe; the watchdog then exits, or is killed."""
        import subprocess

        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def runs_to_renew(page: LeasePageSnapshot, *, now_ms: int, heartbeat_ms: int, silence_ms: int) -> dict[str, str]:
    """Return the runs to renew (run ID -> task ID) for a worker that missed more than two heartbeats, else none.

    A run past its timeout is not renewed: its worker should have ended it. A run without a timeout is renewed for a
    limited time.
    """
    silent_ms = now_ms - page.beat_ms
    if page.beat_ms == 0 or silent_ms <= 2 * heartbeat_ms:
        return {}
    return {
        run.run_id: run.task_id
        for run in page.runs
        if (now_ms < run.until_ms if run.until_ms else silent_ms < silence_ms)
    }


def is_stopped(pid: int) -> bool:
    """Whether the process is suspended or dead: then another worker should take over its tasks."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # pathlib is large
            stat = file.read()
    except OSError:
        return sys.platform == "linux"  # elsewhere this is unknown, and the closed pipe signals its end
    return stat.rpartition(")")[2].split()[0] in ("T", "t", "Z", "X")


def unstarted(page: LeasePageSnapshot, until_ms: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the runs (run ID -> task ID) claimed until this moment of which nothing has started, and the run IDs of a
    claim whose response the worker has not read. None if the page does not tell for certain.
    """
    if not page.is_whole:
        return {}, ()
    runs = {run.run_id: run.task_id for run in page.runs if run.step == CLAIMED and run.claimed_ms <= until_ms}
    return runs, page.claiming if page.claimed_ms <= until_ms else ()


class Watch:
    """Watches one worker: renews its leases while it cannot, and returns tasks that it cannot start."""

    def __init__(self, slate: SharedLeasePage, brief: WatchdogConfig, open_store: "Callable[[], Renewer]") -> None:
        self._slate = slate
        self._brief = brief
        self._open_store = open_store
        self._store: Renewer | None = None
        self._returned: set[str] = set()  # run IDs
        self._claim_looked_ms = 0

    def look(self, now_ms: int) -> None:
        """Look at the page once, and act if necessary. Leases come first; one act does not depend on the other."""
        for act in (self._renew, self._unblock):
            try:
                act(now_ms)
            except Exception as error:  # the next look may succeed
                _tell(self._brief, error)

    def _renew(self, now_ms: int) -> None:
        heartbeat_ms, slate = self._brief.heartbeat_ms, self._slate
        page = slate.read()
        kept = runs_to_renew(page, now_ms=now_ms, heartbeat_ms=heartbeat_ms, silence_ms=self._brief.silence_ms)
        silent_ms = now_ms - page.beat_ms
        claiming = page.claiming if page.beat_ms and 2 * heartbeat_ms < silent_ms < self._brief.silence_ms else ()
        is_due = bool(kept or claiming) and now_ms - page.guarded_ms >= heartbeat_ms
        may_be_due_soon = self._store is None and bool(page.runs) and silent_ms > heartbeat_ms * 3 // 2
        if not (is_due or may_be_due_soon) or is_stopped(self._brief.worker_pid):
            return
        self._store = self._store or self._open_store()  # slow, so it starts early
        if is_due:
            self._store.renew(kept, claiming)
            slate.write_guarded(now_ms)

    def _unblock(self, now_ms: int) -> None:
        """Return tasks to the queue that wait behind a handler that blocks the event loop.

        First the worker is forbidden to start them. It reads that after it has recorded a start, and this process reads
        the starts at its next look: so either the worker starts a run, or the watchdog returns it.
        """
        slate = self._slate
        if not slate.loop_ms() or now_ms - slate.loop_ms() < _BLOCKED_MS:
            self._returned.clear()
            return
        revoked_ms, page = slate.revoked_ms(), slate.read()
        runs, claiming = unstarted(page, revoked_ms)
        runs = {run_id: task_id for run_id, task_id in runs.items() if run_id not in self._returned}
        if now_ms - self._claim_looked_ms < _CLAIM_LOOK_MS:  # it may be committed at any time
            claiming = ()
        if (runs or claiming) and now_ms - revoked_ms >= _LOOK_MS // 2:
            self._store = self._store or self._open_store()
            self._store.give_back(runs, claiming)
            self._returned.update(runs)
            self._claim_looked_ms = now_ms if claiming else self._claim_looked_ms
        newer, claim = unstarted(page, now_ms)
        if not newer.keys() <= self._returned or (claim and page.claimed_ms > revoked_ms):
            slate.write_revoked(now_ms)


def watch(
    slate: SharedLeasePage,
    brief: WatchdogConfig,
    open_store: "Callable[[], Renewer]",
    wait: Callable[[float], bool],
) -> None:
    """Look at least twice per heartbeat until `wait` returns true because the worker is gone."""
    watching = Watch(slate, brief, open_store)
    while not wait(min(brief.heartbeat_ms / 2, _LOOK_MS) / 1000):
        watching.look(time.monotonic_ns() // 1_000_000)


def _tell(brief: WatchdogConfig, error: Exception) -> None:
    from ade.logs import Log  # large, and seldom needed

    Log("ade.worker").warning("guardian.not_renewed", error=str(error), worker_pid=brief.worker_pid)


def end_groups(slate: SharedLeasePage) -> None:
    """Kill the processes that handlers have started and that the dead worker can no longer end."""
    for group in slate.read_groups():
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def main() -> None:
    """Run the watchdog: read its configuration from standard input and watch the worker until it ends."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # the worker died before it sent the configuration
    brief = WatchdogConfig.from_line(line.decode())
    slate = SharedLeasePage(brief.descriptor, brief.capacity)

    def leave_if_worker_is_gone(*_: object) -> None:
        # Else a service manager signaled all processes, and the worker still drains.
        if os.getppid() != brief.worker_pid:
            end_groups(slate)
            os._exit(0)

    # The closed pipe also signals the worker's end, unless a process forked by a handler keeps it open.
    signal.signal(signal.SIGTERM, leave_if_worker_is_gone)
    watch_parent_exit(signal.SIGTERM)
    leave_if_worker_is_gone()
    _watch_for(slate, brief)
    end_groups(slate)


def _watch_for(slate: SharedLeasePage, brief: WatchdogConfig) -> None:

    def open_store() -> "Renewer":
        import importlib  # like the store, only when needed

        module, _, name = brief.renewer.partition(":")
        make: Callable[[str], Renewer] = getattr(importlib.import_module(module), name)
        return make(brief.about)

    def worker_is_gone(seconds: float) -> bool:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready)  # nothing more is ever written: readable means closed

    watch(slate, brief, open_store, worker_is_gone)


if __name__ == "__main__":
    main()
