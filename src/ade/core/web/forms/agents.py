"""What is said about agents, and about those at work."""

from typing import Annotated, Literal

from msgspec import Meta

from ade.core.agents import MOST_TASKS
from ade.core.capabilities import MOST_CAPABILITIES
from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import AgentType, Capability

MaxTasks = Annotated[int, Meta(ge=1, le=MOST_TASKS)]


class ListAgents(Form):
    cursor: str | None = None
    limit: PageSize = 50


class RegisterAgent(Form):
    """What is not said stays as it is known; an empty text or list takes away what was known."""

    max_tasks: MaxTasks  # tasks it may have at once, in all its workers together
    type: AgentType | None = None
    capabilities: Annotated[list[Capability], Meta(max_length=MOST_CAPABILITIES)] | None = None


class SetCapacity(Form):
    max_tasks: MaxTasks


class ListSubagents(Form):
    """The newest first, and no more than a thousand."""

    parent: str | None = None
    status: Literal["pending", "running", "completed", "error"] | None = None
    cursor: str | None = None
    limit: PageSize = 50
