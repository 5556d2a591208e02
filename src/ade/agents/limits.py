"""How far a run may go, and where it works."""

from enum import StrEnum, auto
from pathlib import Path

from msgspec import Struct

from ade.core.errors import ProgramNotStarted


class Limits(Struct, frozen=True, kw_only=True):
    """The memory is that of all processes of the run together, as it is in use and with what they share counted once.

    It is looked at five times a second. The limits of the kernel (RLIMIT_AS) do not serve: they count what is reserved,
    which JavaScript engines do by the gigabyte, and they count each process for itself.
    """

    time_s: float | None = 3600.0
    memory_bytes: int | None = None
    grace_s: float = 5.0  # between SIGTERM and SIGKILL
    silence_s: float | None = None  # a process that is stopped for so long has its programs ended
    kept_bytes: int = 64 * 1024  # of each output stream
    line_bytes: int = 4 * 1024 * 1024  # the longest line that is given whole


class Care(StrEnum):
    """Of a run's working directory."""

    EXISTING = auto()  # it is there
    KEPT = auto()  # made if need be, with its parents


def make_directory(directory: Path, care: Care) -> None:
    """Blocks. Raises ProgramNotStarted if there can be none."""
    if care is Care.EXISTING:
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ProgramNotStarted(f"the working directory {directory} could not be made: {error.strerror}") from error
