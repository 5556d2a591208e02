"""Renews a worker's leases from a process of its own while the worker cannot.

C code that keeps the interpreter to itself for a minute also stops the worker's lease thread. The guardian watches
the time of the last renewal on a shared page; when it grows old while the worker lives, it renews in its place. It
opens the store only then, and ends with the worker: the last thing it does is to end the processes that the worker's
handlers have left behind.
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


# Processes that end with the one that started them.


_PR_SET_PDEATHSIG = 1


def import_path() -> str:
    """A PYTHONPATH with which a child can import what this process can."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109  # pathlib is large


def die_with_parent(parent_pid: int, *, by: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent dies, or end now if that has happened already.

    The kernel watches the thread that started this process, so parents start children from a thread that stays.
    Elsewhere than on Linux the caller's pipe to the parent must do.
    """
    watch_parent_exit(by)
    if os.getppid() != parent_pid:
        os._exit(1)


def watch_parent_exit(by: signal.Signals) -> None:
    """The signal only, for a process that has something left to do then."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)


Renew = Callable[[Mapping[str, str]], object]


class WatchdogConfig(NamedTuple):
    """What the guardian is told at its start, as one line of text; parsing more would cost it memory."""

    worker_pid: int
    descriptor: int
    capacity: int
    heartbeat_ms: int
    silence_ms: int  # how long runs without a time-out are kept for a silent worker
    renewer: str
    about: str  # JSON, so neither a tab nor a line break is in it

    def line(self) -> str:
        return "\t".join(str(field) for field in self) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "WatchdogConfig":
        *numbers, renewer, about = line.rstrip("\n").split("\t")
        pid, descriptor, capacity, heartbeat_ms, silence_ms = (int(number) for number in numbers)
        return cls(pid, descriptor, capacity, heartbeat_ms, silence_ms, renewer, about)


class WatchdogSpec(NamedTuple):
    """How a guardian can renew: it imports `renewer` ("module:function") and calls it with a JSON object of the
    worker's record, lease_ms and `store`, which says where the records are."""

    renewer: str
    store: str


class WatchdogProcess:
    """The worker's side."""

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
        """Close the line; the guardian ends by itself, or is killed."""
        import subprocess

        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def runs_to_renew(page: LeasePageSnapshot, *, now_ms: int, heartbeat_ms: int, silence_ms: int) -> dict[str, str]:
    """The runs to renew (run id -> task id) for a worker that has been silent for over two beats; none while it beats.

    A run past its own time-out is given up: its worker should have ended it. A run without one is kept for a while.
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
    """Whether the process is suspended or dead: then its tasks are better off with another worker."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # pathlib is large
            stat = file.read()
    except OSError:
        return sys.platform == "linux"  # elsewhere nobody can tell, and the closed line tells of its end
    return stat.rpartition(")")[2].split()[0] in ("T", "t", "Z", "X")


def watch(
    slate: SharedLeasePage, brief: WatchdogConfig, open_renew: Callable[[], Renew], wait: Callable[[float], bool]
) -> None:
    """Look twice per heartbeat until `wait` says that the worker is gone."""
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
            renew = renew or open_renew()  # takes its time, so it is begun early
            if not is_due:
                continue
            renew(kept)
        except Exception as error:  # whatever it is, the next look may be luckier
            _tell(brief, error)
        else:
            slate.write_guarded(now_ms)


def _tell(brief: WatchdogConfig, error: Exception) -> None:
    from ade.logs import Log  # large, and seldom needed

    Log("ade.worker").warning("guardian.not_renewed", error=str(error), worker_pid=brief.worker_pid)


def end_groups(slate: SharedLeasePage) -> None:
    """Kill what handlers have started and the worker, being gone, cannot end any more."""
    for group in slate.read_groups():
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # the worker died before it could say anything
    brief = WatchdogConfig.from_line(line.decode())
    slate = SharedLeasePage(brief.descriptor, brief.capacity)

    def leave_if_worker_is_gone(*_: object) -> None:
        if os.getppid() != brief.worker_pid:  # else a service manager tells all processes, and the worker still drains
            end_groups(slate)
            os._exit(0)

    # The closed line tells of the worker's end too, unless a process forked by a handler keeps it open.
    signal.signal(signal.SIGTERM, leave_if_worker_is_gone)
    watch_parent_exit(signal.SIGTERM)
    leave_if_worker_is_gone()
    _watch_for(slate, brief)
    end_groups(slate)


def _watch_for(slate: SharedLeasePage, brief: WatchdogConfig) -> None:

    def open_renew() -> Renew:
        import importlib  # as the store, only when it is needed

        module, _, name = brief.renewer.partition(":")
        make: Callable[[str], Renew] = getattr(importlib.import_module(module), name)
        return make(brief.about)

    def worker_is_gone(seconds: float) -> bool:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready)  # nothing more is ever written: readable means closed

    watch(slate, brief, open_renew, worker_is_gone)


if __name__ == "__main__":
    main()
