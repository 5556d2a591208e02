"""Calls of the section `agents`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from typing import Literal

    from ade.calls.call import Call
    from ade.core.agents import Agent
    from ade.core.web.answers import Page
    from ade.insight.agents import AgentView
    from ade.insight.subagents import Subagent


class AgentsCalls(Section):
    def list_agents(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[AgentView]]:
        """Agents, and how much of their capacity is in use."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.agents import ListAgents
        from ade.insight.agents import AgentView

        query = ListAgents(cursor=cursor, limit=limit)
        return self._call("list_agents", Page[AgentView], query=query)

    def get_agent(self, agent_id: str) -> Call[AgentView]:
        """One agent."""
        from ade.insight.agents import AgentView

        return self._call("get_agent", AgentView, agent_id)

    def set_agent_capacity(self, agent_id: str, *, max_tasks: int) -> Call[Agent]:
        """Change how much it may do at once."""
        from ade.core.agents import Agent
        from ade.core.web.forms.agents import SetCapacity

        body = SetCapacity(max_tasks=max_tasks)
        return self._call("set_agent_capacity", Agent, agent_id, body=body)

    def register_agent(
        self, agent_id: str, *, max_tasks: int, type: str | None = None, capabilities: list[str] | None = None,
    ) -> Call[Agent]:
        """Register an agent, with its type and capacity."""
        from ade.core.agents import Agent
        from ade.core.web.forms.agents import RegisterAgent

        body = RegisterAgent(max_tasks=max_tasks, type=type, capabilities=capabilities)
        return self._call("register_agent", Agent, agent_id, body=body)

    def heartbeat_agent(self, agent_id: str) -> Call[Agent]:
        """Say that it is there."""
        from ade.core.agents import Agent

        return self._call("heartbeat_agent", Agent, agent_id)

    def drain_agent(self, agent_id: str, *, request_key: str | None = None) -> Call[Agent]:
        """Begin nothing new on it."""
        from ade.core.agents import Agent

        return self._call("drain_agent", Agent, agent_id, key=request_key)

    def activate_agent(self, agent_id: str, *, request_key: str | None = None) -> Call[Agent]:
        """Let it work again."""
        from ade.core.agents import Agent

        return self._call("activate_agent", Agent, agent_id, key=request_key)

    def mark_agent_offline(self, agent_id: str, *, request_key: str | None = None) -> Call[Agent]:
        """Say that it is not there."""
        from ade.core.agents import Agent

        return self._call("mark_agent_offline", Agent, agent_id, key=request_key)

    def remove_agent(self, agent_id: str) -> Call[None]:
        """Forget an agent."""
        return self._call("remove_agent", type(None), agent_id)

    def list_subagents(
        self, *, parent: str | None = None, status: Literal["pending", "running", "completed", "error"] | None = None,
        cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Subagent]]:
        """Agents at work: for whom, how far, at what cost."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.agents import ListSubagents
        from ade.insight.subagents import Subagent

        query = ListSubagents(parent=parent, status=status, cursor=cursor, limit=limit)
        return self._call("list_subagents", Page[Subagent], query=query)

    def get_subagent(self, task_id: str) -> Call[Subagent]:
        """One of them."""
        from ade.insight.subagents import Subagent

        return self._call("get_subagent", Subagent, task_id)
