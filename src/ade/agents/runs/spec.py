"""What a run of an agent is asked to do, and whom it tells about it."""

from collections.abc import Mapping
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from ade.agents.protocols.base import UsageReported
from ade.agents.runs.command_line import RunAssignment
from ade.agents.runs.model import AgentProgress, Budget
from ade.errors import ProgramNotStarted
from ade.tasks.outcomes import Leave


class AgentRunSpec(Struct, frozen=True, kw_only=True):
    """One run. `task_id` and `run_id` name its files; a task's earlier attempt left `earlier`."""

    task_id: str
    run_id: str
    attempt: int
    assignment: RunAssignment
    description: str
    directory: Path | None = None  # None: one of its own
    workspace: str | None = None  # the name of its own directory, shared by all runs that name it; None: the task's id
    environment: Mapping[str, str] = {}
    budget: Budget = Budget()
    author: str | None = None
    trace: str | None = None  # where it stands in a trace; its program is told
    lease_s: float | None = None  # of its task: a worker that is stopped for longer has lost it
    session_tokens: int | None = None  # what the session had taken before, where its program counts that
    parent_model: str | None = None  # taken if the model is not to be had and the profile names no other
    earlier: AgentProgress | None = None


class RunContext(Protocol):
    """Whoever the run belongs to: a task's context, or a tool that runs an agent without a queue."""

    async def say(self, text: str, stream: str) -> None:
        """Keep a line of output."""

    async def progress(self, progress: AgentProgress) -> None:
        """Keep how far it has come. Raises if the run is no longer wanted."""

    async def guard(self, tool: str, arguments: dict[str, Any], /, *, shown: dict[str, Any] | None = None) -> None:
        """Return if the agent may use the tool like this; otherwise raise what ends the run.

        Rules look at the arguments; people are shown, and agree to, what is `shown`.
        """

    async def allows(self, tool: str, arguments: dict[str, Any], /, *, shown: dict[str, Any] | None = None) -> Leave:
        """Whether it may by now, without asking anybody. Raises Denied."""


class SpendingBudget(Protocol):
    """What authors may spend. Both may be asked often."""

    async def budget_of(self, author: str, run_id: str) -> Budget | None:
        """What is left for this run of its author's budget; None if he has none."""

    async def enter(self, author: str, run_id: str, spent: UsageReported) -> None:
        """The run has spent this by now, in all."""


# How far a run may go, and where it works.


class ProcessLimits(Struct, frozen=True, kw_only=True):
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


class DirectoryPolicy(StrEnum):
    """Of a run's working directory."""

    EXISTING = auto()  # it is there
    KEPT = auto()  # made if need be, with its parents


def make_directory(directory: Path, care: DirectoryPolicy) -> None:
    """Blocks. Raises ProgramNotStarted if there can be none."""
    if care is DirectoryPolicy.EXISTING:
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ProgramNotStarted(f"the working directory {directory} could not be made: {error.strerror}") from error
