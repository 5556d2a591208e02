"""What a run of an agent is asked to do, and whom it tells about it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from ade.core.agent_runs.budgets import Budget
from ade.core.agent_runs.command_line import Assignment
from ade.core.agent_runs.events import Spent
from ade.core.agent_runs.results import AgentProgress
from ade.core.control import Leave


class Order(Struct, frozen=True, kw_only=True):
    """One run. `task_id` and `run_id` name its files; a task's earlier attempt left `earlier`."""

    task_id: str
    run_id: str
    attempt: int
    assignment: Assignment
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


class RunDesk(Protocol):
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


class Purse(Protocol):
    """What authors may spend. Both may be asked often."""

    async def budget_of(self, author: str, run_id: str) -> Budget | None:
        """What is left for this run of its author's budget; None if he has none."""

    async def enter(self, author: str, run_id: str, spent: Spent) -> None:
        """The run has spent this by now, in all."""
