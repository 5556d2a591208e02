"""The supervisor: a small process between the worker and an agent's program, one per run.

It is the subreaper of everything the program starts (PR_SET_CHILD_SUBREAPER), so a process cannot escape by leaving the
process group or by losing its parent. It kills all of them when the program exits, on the worker's command, at the time
or memory limit, and when the worker dies or sends no heartbeat for too long. It does not depend on an event loop.

It reads its launch specification from a socket, then commands and heartbeats of one byte each. It responds with the
result of the start, and with a final report. Messages are marshalled with a length prefix of four bytes; both ends run
the same Python.
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

# Between fork and exec: what must be set up before the program starts.


IN_DIRECTORY, IN_PROGRAM = "directory", "program"  # where a start can fail
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_FIRST_FOR_OOM = 500  # if the machine is out of memory, the kernel kills the agent before the worker


class LaunchSpec(NamedTuple):
    """What to run, and its limits. Bytes as the kernel takes them."""

    arguments: list[bytes]
    environment: dict[bytes, bytes]
    directory: bytes
    time_s: float | None
    memory_bytes: int | None
    grace_s: float
    silence_s: float | None  # a worker without a heartbeat for this long has lost its lease, or will


def become_reaper() -> None:
    """Make this process the new parent of all orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start_program(brief: LaunchSpec) -> int | tuple[str, int]:
    """Return the process ID, or where the start failed and the errno."""
    read_end, write_end = os.pipe()  # closed by the kernel on exec
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_program(brief, supervisor, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        trouble = file.read()
    if not trouble:
        return pid
    os.waitpid(pid, 0)
    where, number = marshal.loads(trouble)
    return where, number


def _become_program(brief: LaunchSpec, supervisor: int, write_end: int) -> NoReturn:
    where = IN_DIRECTORY
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))  # if the supervisor is killed, so is the program
        if os.getppid() != supervisor:
            os._exit(1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):  # some are reserved by the C library
                signal.signal(number, signal.SIG_DFL)  # signals that a background shell or Python has ignored
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would contain secrets
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123  # pathlib is large
            file.write(str(_FIRST_FOR_OOM))
        os.chdir(brief.directory)
        where = IN_PROGRAM
        os.execvpe(brief.arguments[0], brief.arguments, brief.environment)
    except OSError as error:
        os.write(write_end, marshal.dumps((where, error.errno or errno.EIO)))
    finally:
        os._exit(127)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


END, KILL, BEAT = b"e", b"k", b"."  # SIGTERM with a grace period, immediate SIGKILL, and heartbeat
STOPPED, TIME_LIMIT, MEMORY_LIMIT, WORKER_GONE = "stopped", "time_limit", "memory_limit", "worker_gone"
LENGTH_BYTES = 4

_LOOK_S = 0.2  # memory check interval
_SWEEP_S = 0.02  # between two searches for remaining processes
_GIVE_UP_S = 10.0  # a process that survives SIGKILL for this long is stuck in the kernel or belongs to another user


def pack(message: Any) -> bytes:
    """Return the message with its length prefix."""
    data = marshal.dumps(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def unpack(data: bytes) -> Any:
    """Decode a message without its length prefix."""
    return marshal.loads(data)


class ProcessSupervisor:
    """Watches one program and its limits, and kills all its processes at the end."""

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
        self._look_at = self._began  # when to check the memory limit
        self._status: int | None = None  # of the program, once it is reaped

    def watch(self) -> None:
        """Return when the program has exited or everything must be killed."""
        while not self._program_has_ended():
            now = time.monotonic()
            if self._kill_at is not None and now >= self._kill_at:
                return
            if self._brief.time_s is not None and now >= self._began + self._brief.time_s:
                self._end(TIME_LIMIT)
            if self._brief.silence_s is not None and now >= self._heard_at + self._brief.silence_s:
                self._kill(WORKER_GONE)
                return
            if self._brief.memory_bytes is not None and now >= self._look_at:
                self._look_at_memory(self._brief.memory_bytes)
                self._look_at = now + _LOOK_S
            moments = self._moments()
            self._poll_for(min(moments) - time.monotonic() if moments else None)

    def sweep(self) -> int:
        """Kill all remaining processes, repeatedly. Returns how many could not be killed."""
        for caller in tuple(self._callers):
            self._hang_up(caller)
        with contextlib.suppress(OSError):  # the program is not reaped yet, so its group ID cannot be reused
            os.killpg(self._program, signal.SIGKILL)
        give_up_at = time.monotonic() + _GIVE_UP_S
        while True:
            alive = process_tree.descendants(os.getpid())
            for process in alive:
                process_tree.send(process, signal.SIGKILL)
            if not self._reap():
                return 0
            if time.monotonic() >= give_up_at:
                return len(alive)
            self._poll_for(_SWEEP_S)

    def report(self, left: int) -> dict[str, Any]:
        """Return the final report for the worker."""
        return {"why": self._why, "status": self._status, "left": left}

    def _moments(self) -> list[float]:
        moments = [] if self._brief.memory_bytes is None else [self._look_at]
        if self._brief.silence_s is not None:
            moments.append(self._heard_at + self._brief.silence_s)
        if self._kill_at is not None:
            moments.append(self._kill_at)
        elif self._brief.time_s is not None:
            moments.append(self._began + self._brief.time_s)
        return moments

    def _poll_for(self, seconds: float | None) -> None:
        for descriptor, _ in self._poll.poll(None if seconds is None else max(seconds, 0.0) * 1000 + 1):
            if descriptor == self._wakes:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakes, 4096)
            elif descriptor == self._line and (orders := _orders(self._line)):
                self._heard_at = time.monotonic()
                self._obey(orders)
            else:  # the socket is closed, or the worker has exited
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
        """Send SIGTERM to all processes, in and out of the group. SIGCONT follows, or stopped ones would not receive
        it.
        """
        if self._kill_at is not None:
            return
        self._why = why
        self._kill_at = time.monotonic() + self._brief.grace_s
        strays = [
            process for process in process_tree.descendants(os.getpid()) if _group_of(process.pid) != self._program
        ]
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(OSError):
                os.killpg(self._program, number)
            for process in strays:
                process_tree.send(process, number)

    def _look_at_memory(self, limit: int) -> None:
        """Sum the memory of all processes. Before a kill, shared pages are counted only once."""
        pids = [process.pid for process in process_tree.descendants(os.getpid())]
        if process_tree.resident(pids) > limit and process_tree.proportional(pids) > limit:
            self._kill(MEMORY_LIMIT)

    def _program_has_ended(self) -> bool:
        """Reap orphans on the way. `sweep` reaps the program itself, which keeps its group ID reserved."""
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return False
            if ended.si_pid == self._program:
                return True
            os.waitpid(ended.si_pid, 0)

    def _reap(self) -> bool:
        """Return whether any children are left."""
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
    """Return a descriptor that is readable once the worker has exited; None outside Linux."""
    try:
        handle = os.pidfd_open(worker_pid)
    except (OSError, AttributeError):
        handle = None
    if os.getppid() != worker_pid:
        os._exit(1)
    return handle


def _read_brief(line: int) -> LaunchSpec | None:
    """Return the launch specification; None if the worker exited before it sent one."""
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
    """Return a pipe that is readable after a child has exited. Other signals are left to the worker."""
    wakes, write_end = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a service manager signals all processes, while the worker still drains
    return wakes


def main() -> None:
    """Run the supervisor; the arguments are the socket's descriptor and the worker's PID."""
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
    supervisor = ProcessSupervisor(brief, line, worker, wakes, program)
    try:
        supervisor.watch()
    finally:
        left = supervisor.sweep()
    _say(line, supervisor.report(left))


def _let_go_of_streams() -> None:
    """Leave the streams to the program, so that readers get end of file when it exits."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)


def _say(line: int, message: Any) -> None:
    with contextlib.suppress(OSError):  # the worker has exited
        os.write(line, pack(message))
