"""Processes by their numbers: waited for through the kernel, never by looking again and again."""

import os
import select
import sys
from pathlib import Path

from ade.agents.processes.process import ProcessSpec
from ade.agents.runs.spec import DirectoryPolicy, ProcessLimits

UNRULY = Path(__file__).with_name("unruly.py")
PATIENCE_S = 60.0


def spec_of(directory: Path, *command: str, stdin: str = "", limits: ProcessLimits | None = None) -> ProcessSpec:
    """Any program, in a directory that is there."""
    return ProcessSpec(
        arguments=command,
        directory=directory,
        environment=dict(os.environ),
        care=DirectoryPolicy.EXISTING,
        stdin=stdin,
        limits=limits or ProcessLimits(time_s=PATIENCE_S),
    )


def unruly(directory: Path, *command: str, stdin: str = "", limits: ProcessLimits | None = None) -> ProcessSpec:
    """One of the programs in `unruly.py`."""
    return spec_of(directory, sys.executable, str(UNRULY), *command, stdin=stdin, limits=limits)


class Printed:
    """What a program has printed, by stream."""

    def __init__(self) -> None:
        self._data = {"stdout": b"", "stderr": b""}

    async def __call__(self, stream: str, data: bytes) -> None:
        self._data[stream] += data

    @property
    def stdout(self) -> str:
        return self._data["stdout"].decode()

    @property
    def stderr(self) -> str:
        return self._data["stderr"].decode()


def is_gone(pid: int) -> bool:
    """Now. One that is dead and not yet reaped counts as gone."""
    return ends_within(pid, 0.0)


def ends_within(pid: int, seconds: float) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)
