"""What a handler forks off its process is not the worker: once it comes out of the handler it ends as a program would.

A copy that went on would wait for ever for calls that never come, with the store's files open.
"""

import contextlib
import os
import sys
import traceback
from types import TracebackType
from typing import NoReturn


class ForksEndHere:
    """A block that only the process that has entered it gets out of."""

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            leave(error)


def leave(error: BaseException | None) -> NoReturn:
    """End this process at once, with the exit code that the error would give it and without anybody's tidying up."""
    code = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            traceback.print_exception(error)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)
