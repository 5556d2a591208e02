"""The step from the keeper to the program: what must be set between fork and exec."""

import contextlib
import ctypes
import errno
import marshal
import os
import resource
import signal
import sys
from typing import NamedTuple, NoReturn

IN_DIRECTORY, IN_PROGRAM = "directory", "program"  # where a start can fail
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_FIRST_FOR_OOM = 500  # if the whole machine is out of memory, the kernel takes the agent rather than the worker


class Brief(NamedTuple):
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


def start_program(brief: Brief) -> int | tuple[str, int]:
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


def _become_program(brief: Brief, keeper: int, tell: int) -> NoReturn:
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
