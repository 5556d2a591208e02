"""The watchdog: a separate process that renews a worker's leases while the worker cannot.

C code that holds the interpreter lock for a minute also stops the worker's lease thread. The watchdog reads the time
of the last renewal from a shared page. When it is too old while the worker is alive, the watchdog renews instead. It
opens the store only then, and ends with the worker. Finally it kills the processes that the worker's handlers have
left behind.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping

from ade.worker.shared_memory import LeasePageSnapshot, NamedTuple, SharedLeasePage

TYPE_CHECKING = False  # as in `typing`, which is large

if TYPE_CHECKING:
    import subprocess


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


Renew = Callable[[Mapping[str, str]], object]


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


def watch(
    slate: SharedLeasePage, brief: WatchdogConfig, open_renew: Callable[[], Renew], wait: Callable[[float], bool]
) -> None:
    """Check twice per heartbeat until `wait` returns true because the worker is gone."""
    renew: Renew | None = None
    while not wait(brief.heartbeat_ms / 2000):
        now_ms = time.monotonic_ns() // 1_000_000
        page = slate.read()
        kept = runs_to_renew(page, now_ms=now_ms, heartbeat_ms=brief.heartbeat_ms, silence_ms=brief.silence_ms)
        is_due = bool(kept) and now_ms - page.guarded_ms >= brief.heartbeat_ms
        may_be_due_soon = renew is None and bool(page.runs) and now_ms - page.beat_ms > brief.heartbeat_ms * 3 // 2
        if not (is_due or may_be_due_soon) or is_stopped(brief.worker_pid):
            continue
        try:
            renew = renew or open_renew()  # slow, so it starts early
            if not is_due:
                continue
            renew(kept)
        except Exception as error:  # the next check may succeed
            _tell(brief, error)
        else:
            slate.write_guarded(now_ms)


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

    def open_renew() -> Renew:
        import importlib  # like the store, only when needed

        module, _, name = brief.renewer.partition(":")
        make: Callable[[str], Renew] = getattr(importlib.import_module(module), name)
        return make(brief.about)

    def worker_is_gone(seconds: float) -> bool:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready)  # nothing more is ever written: readable means closed

    watch(slate, brief, open_renew, worker_is_gone)


if __name__ == "__main__":
    main()
