"""The keeper: a small process between the worker and an agent's program, one for each run.

It is the nearest reaper of everything the program starts (PR_SET_CHILD_SUBREAPER), so nothing gets away from it by
leaving the process group or by losing its parent. It ends them all when the program ends, when the worker says so,
when time or memory runs out, and when the worker is gone, however that died, or says nothing for too long. It depends
on nobody's event loop.

It reads its brief from a socket, then orders and signs of life of one byte each; it answers with what became of the
start, and at the end with a report. Messages are marshalled behind four bytes of length: both ends are the same Python.
"""

import contextlib
import ctypes
import errno
import marshal
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NamedTuple, NoReturn

from ade.agents.processes import process_tree

# The step from the keeper to the program: what must be set between fork and exec.


IN_DIRECTORY, IN_PROGRAM = "directory", "program"  # where a start can fail
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_FIRST_FOR_OOM = 500  # if the whole machine is out of memory, the kernel takes the agent rather than the worker


class LaunchSpec(NamedTuple):
    """What is to be run and how far it may go. Bytes as the kernel takes them."""

    arguments: list[bytes]
    environment: dict[bytes, bytes]
    directory: bytes
    time_s: float | None
    memory_bytes: int | None
    grace_s: float
    silence_s: float | None  # a worker that says nothing for so long has lost its lease, or will


def become_reaper() -> None:
    """From now on whoever loses its parent among the descendants becomes a child of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start_program(brief: LaunchSpec) -> int | tuple[str, int]:
    """The process id, or where it failed and the error's number."""
    told, tell = os.pipe()  # closed by the kernel when the program begins
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_program(brief, keeper, tell)
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        trouble = file.read()
    if not trouble:
        return pid
    os.waitpid(pid, 0)
    where, number = marshal.loads(trouble)
    return where, number


def _become_program(brief: LaunchSpec, keeper: int, tell: int) -> NoReturn:
    where = IN_DIRECTORY
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))  # if the keeper is killed, this ends too
        if os.getppid() != keeper:
            os._exit(1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):  # some are the C library's own
                signal.signal(number, signal.SIG_DFL)  # whatever a shell in the background, or Python, has ignored
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold secrets
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123  # pathlib is large
            file.write(str(_FIRST_FOR_OOM))
        os.chdir(brief.directory)
        where = IN_PROGRAM
        os.execvpe(brief.arguments[0], brief.arguments, brief.environment)
    except OSError as error:
        os.write(tell, marshal.dumps((where, error.errno or errno.EIO)))
    finally:
        os._exit(127)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


END, KILL, BEAT = b"e", b"k", b"."  # SIGTERM and some time, or SIGKILL at once; and that the worker is there
STOPPED, TIME_LIMIT, MEMORY_LIMIT, WORKER_GONE = "stopped", "time_limit", "memory_limit", "worker_gone"
LENGTH_BYTES = 4

_LOOK_S = 0.2  # at the memory, if there is a limit
_SELDOM_LOOK_S = 1.0  # if there is none, for the peak alone
_SWEEP_S = 0.02  # between two looks for what is left at the end
_GIVE_UP_S = 10.0  # a process that SIGKILL does not end in this time hangs in the kernel or belongs to another user


def pack(message: Any) -> bytes:
    data = marshal.dumps(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def unpack(data: bytes) -> Any:
    return marshal.loads(data)


class ProcessSupervisor:
    def __init__(self, brief: LaunchSpec, line: int, worker: int | None, wakes: int, program: int) -> None:
        self._brief = brief
        self._line = line
        self._wakes = wakes
        self._program = program
        self._poll = select.poll()
        self._callers = {line} if worker is None else {line, worker}
        for descriptor in (wakes, *self._callers):
            self._poll.register(descriptor, select.POLLIN)
        self._began = self._heard_at = time.monotonic()
        self._why: str | None = None
        self._kill_at: float | None = None
        self._look_s = _SELDOM_LOOK_S if brief.memory_bytes is None else _LOOK_S
        self._look_at = self._began
        self._peak = 0
        self._status: int | None = None  # of the program, once it is reaped

    def watch(self) -> None:
        """Until the program has ended or everything is to be killed."""
        while not self._program_has_ended():
            now = time.monotonic()
            if self._kill_at is not None and now >= self._kill_at:
                return
            if self._brief.time_s is not None and now >= self._began + self._brief.time_s:
                self._end(TIME_LIMIT)
            if self._brief.silence_s is not None and now >= self._heard_at + self._brief.silence_s:
                self._kill(WORKER_GONE)
                return
            if now >= self._look_at:
                self._look_at_memory()
                self._look_at = now + self._look_s
            self._poll_for(min(self._moments()) - time.monotonic())

    def sweep(self) -> int:
        """Kill whatever is there, until nothing is. Answers how many could not be killed."""
        for caller in tuple(self._callers):
            self._hang_up(caller)
        with contextlib.suppress(OSError):  # the program is not reaped yet, so its group's number is nobody else's
            os.killpg(self._program, signal.SIGKILL)
        give_up_at = time.monotonic() + _GIVE_UP_S
        while True:
            alive = process_tree.descendants(os.getpid())
            for seen in alive:
                process_tree.send(seen, signal.SIGKILL)
            if not self._reap():
                return 0
            if time.monotonic() >= give_up_at:
                return len(alive)
            self._poll_for(_SWEEP_S)

    def report(self, left: int) -> dict[str, Any]:
        largest = max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, self._peak)
        return {
            "why": self._why,
            "status": self._status,
            "duration_s": time.monotonic() - self._began,
            "peak_memory": largest,
            "left": left,
        }

    def _moments(self) -> list[float]:
        moments = [self._look_at]
        if self._brief.silence_s is not None:
            moments.append(self._heard_at + self._brief.silence_s)
        if self._kill_at is not None:
            moments.append(self._kill_at)
        elif self._brief.time_s is not None:
            moments.append(self._began + self._brief.time_s)
        return moments

    def _poll_for(self, seconds: float) -> None:
        for descriptor, _ in self._poll.poll(max(seconds, 0.0) * 1000 + 1):
            if descriptor == self._wakes:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakes, 4096)
            elif descriptor == self._line and (orders := _orders(self._line)):
                self._heard_at = time.monotonic()
                self._obey(orders)
            else:  # the line is closed, or the worker has ended
                self._kill(WORKER_GONE)
                self._hang_up(descriptor)

    def _hang_up(self, caller: int) -> None:
        self._callers.discard(caller)
        self._poll.unregister(caller)

    def _obey(self, orders: bytes) -> None:
        if KILL in orders:
            self._kill(STOPPED)
        elif END in orders:
            self._end(STOPPED)

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        self._kill_at = 0.0

    def _end(self, why: str) -> None:
        """Ask everybody to end, in the group and out of it. What is stopped must go on, or it hears nothing."""
        if self._kill_at is not None:
            return
        self._why = why
        self._kill_at = time.monotonic() + self._brief.grace_s
        strays = [seen for seen in process_tree.descendants(os.getpid()) if _group_of(seen.pid) != self._program]
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(OSError):
                os.killpg(self._program, number)
            for seen in strays:
                process_tree.send(seen, number)

    def _look_at_memory(self) -> None:
        """The sum over all processes. What they share counts once before anybody is ended for it."""
        limit = self._brief.memory_bytes
        pids = [seen.pid for seen in process_tree.descendants(os.getpid())]
        used = process_tree.resident(pids)
        if limit is not None and used > limit:
            used = process_tree.proportional(pids)
            if used > limit:
                self._kill(MEMORY_LIMIT)
        self._peak = max(self._peak, used)

    def _program_has_ended(self) -> bool:
        """Reaps orphans on the way; the program itself is left for `sweep`, because its number is its group's."""
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return False
            if ended.si_pid == self._program:
                return True
            os.waitpid(ended.si_pid, 0)

    def _reap(self) -> bool:
        """Whether any children are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                self._status = status


def _orders(line: int) -> bytes:
    try:
        return os.read(line, 64)
    except OSError:
        return b""


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _watched(worker_pid: int) -> int | None:
    """Readable once the worker is gone. Elsewhere than on Linux the closed line must do."""
    try:
        handle = os.pidfd_open(worker_pid)
    except (OSError, AttributeError):
        handle = None
    if os.getppid() != worker_pid:
        os._exit(1)
    return handle


def _read_brief(line: int) -> LaunchSpec | None:
    """None if the worker has gone before it could say anything."""
    with os.fdopen(line, "rb", buffering=0, closefd=False) as file:

        def read(count: int) -> bytes:
            data = b""
            while len(data) < count and (more := file.read(count - len(data))):
                data += more
            return data

        length = int.from_bytes(read(LENGTH_BYTES), "big")
        data = read(length)
    return LaunchSpec(*unpack(data)) if length and len(data) == length else None


def _hear_of_children() -> int:
    """A pipe that is readable after a child has ended. The other signals are the worker's affair."""
    wakes, tell = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a service manager tells all processes, and the worker still drains
    return wakes


def main() -> None:
    line, worker_pid = (int(argument) for argument in sys.argv[-2:])
    os.set_inheritable(line, False)
    worker = _watched(worker_pid)
    become_reaper()
    wakes = _hear_of_children()
    brief = _read_brief(line)
    if brief is None:
        return
    program = start_program(brief)
    _let_go_of_streams()
    if isinstance(program, tuple):
        _say(line, {"refused": program})
        return
    _say(line, {"pid": program})
    keeper = ProcessSupervisor(brief, line, worker, wakes, program)
    try:
        keeper.watch()
    finally:
        left = keeper.sweep()
    _say(line, keeper.report(left))


def _let_go_of_streams() -> None:
    """They are the program's alone now: who reads them sees their end when it ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)


def _say(line: int, message: Any) -> None:
    with contextlib.suppress(OSError):  # the worker is gone, and nobody listens
        os.write(line, pack(message))
