"""Calls: `agents`, `inboxes`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.transport import Section

if TYPE_CHECKING:
    from typing import Literal

    from ade.agents.conversations.api import ClearedItems, InboxRow, InboxView, NewInboxItem, PutItems
    from ade.agents.conversations.inbox import ClearReason
    from ade.agents.model import Agent
    from ade.agents.views import AgentView, Subagent
    from ade.common.calls import Call
    from ade.server.pagination import Page


class AgentsCalls(Section):
    """Methods of the client: `agents`, `inboxes`."""

    def list_agents(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[AgentView]]:
        """Agents, and how much of their capacity is in use."""
        from ade.agents.api import ListAgents
        from ade.agents.views import AgentView
        from ade.server.pagination import Page

        query = ListAgents(cursor=cursor, limit=limit)
        return self._call("list_agents", Page[AgentView], query=query)

    def get_agent(self, agent_id: str) -> Call[AgentView]:
        """One agent."""
        from ade.agents.views import AgentView

        return self._call("get_agent", AgentView, agent_id)

    def set_agent_capacity(self, agent_id: str, *, max_tasks: int) -> Call[Agent]:
        """Change how much it may do at once."""
        from ade.agents.api import SetCapacity
        from ade.agents.model import Agent

        body = SetCapacity(max_tasks=max_tasks)
        return self._call("set_agent_capacity", Agent, agent_id, body=body)

    def register_agent(
        self, agent_id: str, *, max_tasks: int, type: str | None = None, capabilities: list[str] | None = None,
    ) -> Call[Agent]:
        """Register an agent, with its type and capacity."""
        from ade.agents.api import RegisterAgent
        from ade.agents.model import Agent

        body = RegisterAgent(max_tasks=max_tasks, type=type, capabilities=capabilities)
        return self._call("register_agent", Agent, agent_id, body=body)

    def heartbeat_agent(self, agent_id: str) -> Call[Agent]:
        """Say that it is there."""
        from ade.agents.model import Agent

        return self._call("heartbeat_agent", Agent, agent_id)

    def drain_agent(self, agent_id: str, *, request_key: str | None = None) -> Call[Agent]:
        """Begin nothing new on it."""
        from ade.agents.model import Agent

        return self._call("drain_agent", Agent, agent_id, key=request_key)

    def activate_agent(self, agent_id: str, *, request_key: str | None = None) -> Call[Agent]:
        """Let it work again."""
        from ade.agents.model import Agent

        return self._call("activate_agent", Agent, agent_id, key=request_key)

    def mark_agent_offline(self, agent_id: str, *, request_key: str | None = None) -> Call[Agent]:
        """Say that it is not there."""
        from ade.agents.model import Agent

        return self._call("mark_agent_offline", Agent, agent_id, key=request_key)

    def remove_agent(self, agent_id: str) -> Call[None]:
        """Forget an agent."""
        return self._call("remove_agent", type(None), agent_id)

    def list_subagents(
        self, *, parent: str | None = None, status: Literal["pending", "running", "completed", "error"] | None = None,
        cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Subagent]]:
        """Agents at work: for whom, how far, at what cost."""
        from ade.agents.api import ListSubagents
        from ade.agents.views import Subagent
        from ade.server.pagination import Page

        query = ListSubagents(parent=parent, status=status, cursor=cursor, limit=limit)
        return self._call("list_subagents", Page[Subagent], query=query)

    def get_subagent(self, task_id: str) -> Call[Subagent]:
        """One of them."""
        from ade.agents.views import Subagent

        return self._call("get_subagent", Subagent, task_id)

    def list_inboxes(self, *, after: str = "", cursor: str | None = None, limit: int = 50) -> Call[Page[InboxRow]]:
        """Conversations, and what they have still to be told."""
        from ade.agents.conversations.api import InboxRow, ListInboxes
        from ade.server.pagination import Page

        query = ListInboxes(after=after, cursor=cursor, limit=limit)
        return self._call("list_inboxes", Page[InboxRow], query=query)

    def get_inbox(self, inbox_id: str) -> Call[InboxView]:
        """One conversation's inbox."""
        from ade.agents.conversations.api import InboxView

        return self._call("get_inbox", InboxView, inbox_id)

    def put_inbox_items(
        self, inbox_id: str, *, items: list[NewInboxItem], consumer: str | None = None, request_key: str | None = None,
    ) -> Call[PutItems]:
        """Tell a conversation something."""
        from ade.agents.conversations.api import PutInboxItems, PutItems

        body = PutInboxItems(items=items, consumer=consumer)
        return self._call("put_inbox_items", PutItems, inbox_id, body=body, key=request_key)

    def remove_inbox_item(self, inbox_id: str, item_id: str) -> Call[None]:
        """Take an item out."""
        return self._call("remove_inbox_item", type(None), inbox_id, item_id)

    def clear_inbox(
        self, inbox_id: str, *, reason: ClearReason, if_match: int | None = None, request_key: str | None = None,
    ) -> Call[ClearedItems]:
        """Empty an inbox."""
        from ade.agents.conversations.api import ClearedItems, ClearInbox

        body = ClearInbox(reason=reason)
        return self._call("clear_inbox", ClearedItems, inbox_id, body=body, if_match=if_match, key=request_key)

    def reset_inbox(self, inbox_id: str, *, request_key: str | None = None) -> Call[None]:
        """Forget what its consumer remembers."""
        return self._call("reset_inbox", type(None), inbox_id, key=request_key)
