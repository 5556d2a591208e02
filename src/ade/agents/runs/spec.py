"""The specification of an agent run, the interfaces that it reports to, and its process limits."""

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
    """One run. `task_id` and `run_id` name its files; `earlier` is the progress of the task's earlier attempt."""

    task_id: str
    run_id: str
    attempt: int
    assignment: RunAssignment
    description: str
    directory: Path | None = None  # None: a directory of its own
    workspace: str | None = None  # name of its own directory, shared by runs that name it; None: the task ID
    environment: Mapping[str, str] = {}
    budget: Budget = Budget()
    author: str | None = None
    trace: str | None = None  # trace context, passed to the program
    lease_s: float | None = None  # of its task: a worker that is suspended for longer has lost it
    session_tokens: int | None = None  # used by the session before, if its program counts that
    parent_model: str | None = None  # used if the model is unavailable and the profile names no other
    earlier: AgentProgress | None = None


class RunContext(Protocol):
    """The owner of a run: a task's context, or a tool that runs an agent without the queue."""

    async def say(self, text: str, stream: str) -> None:
        """Store a line of output."""

    async def progress(self, progress: AgentProgress) -> None:
        """Store the progress. Raises if the run is no longer wanted."""

    async def guard(self, tool: str, arguments: dict[str, Any], /, *, shown: dict[str, Any] | None = None) -> None:
        """Return if the tool call is allowed; otherwise raise the exception that ends the run.

        Rules check the arguments; reviewers see and approve `shown`.
        """

    async def allows(self, tool: str, arguments: dict[str, Any], /, *, shown: dict[str, Any] | None = None) -> Leave:
        """Return whether the call is allowed by now, without requesting approval. Raises Denied."""


class SpendingBudget(Protocol):
    """The spending limits of authors. Both methods are called often."""

    async def budget_of(self, author: str, run_id: str) -> Budget | None:
        """Return what is left of the author's budget for this run; None if there is no limit."""

    async def enter(self, author: str, run_id: str, spent: UsageReported) -> None:
        """Record the run's total spending so far."""


# Limits and working directory.


class ProcessLimits(Struct, frozen=True, kw_only=True):
    """Limits of a run's processes. The memory limit covers all of them together, with shared pages counted once.

    It is checked five times per second. Kernel limits (RLIMIT_AS) are unsuitable: they count reserved memory, of which
    JavaScript engines reserve gigabytes, and they apply to each process separately.
    """

    time_s: float | None = 3600.0
    memory_bytes: int | None = None
    grace_s: float = 5.0  # between SIGTERM and SIGKILL
    silence_s: float | None = None  # a process that is suspended for this long has its programs killed


class DirectoryPolicy(StrEnum):
    """Whether a run's working directory must exist."""

    EXISTING = auto()  # must exist
    KEPT = auto()  # created if needed, with its parents


def make_directory(directory: Path, care: DirectoryPolicy) -> None:
    """Create the directory if the policy says so. Blocks. Raises ProgramNotStarted if it cannot exist."""
    if care is DirectoryPolicy.EXISTING:
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ProgramNotStarted(f"the working directory {directory} could not be made: {error.strerror}") from error
