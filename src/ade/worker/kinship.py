"""Processes that end with the one that started them."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def import_path() -> str:
    """A PYTHONPATH with which a child can import what this process can."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109  # pathlib is large


def die_with_parent(parent_pid: int, *, by: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent dies, or end now if that has happened already.

    The kernel watches the thread that started this process, so parents start children from a thread that stays.
    Elsewhere than on Linux the caller's pipe to the parent must do.
    """
    hear_of_parents_end(by)
    if os.getppid() != parent_pid:
        os._exit(1)


def hear_of_parents_end(by: signal.Signals) -> None:
    """The signal only, for a process that has something left to do then."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
