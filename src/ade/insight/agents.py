"""How agents are doing: how they stand, and how much of what they may do they are doing."""

from collections.abc import Sequence

from msgspec import Struct

from ade.core.agents import AgentStatus, AgentUse, status_at
from ade.insight.reasons import Reason, listed
from ade.insight.workers import WorkerView
from ade.ports import Stores


class Unit(Struct, frozen=True, kw_only=True):
    """A unit in use."""

    run_id: str
    expires_in_ms: int


class AgentView(Struct, frozen=True, kw_only=True):
    id: str
    status: AgentStatus  # offline too when nobody has heard of it for long
    type: str | None = None
    capabilities: tuple[str, ...]
    max_tasks: int
    used: int
    registered_at: int
    silent_ms: int  # since its last sign of life was due
    units: list[Unit]

    @property
    def free(self) -> int:
        return max(self.max_tasks - self.used, 0)


def view(use: AgentUse, steady: int) -> AgentView:
    agent = use.agent
    return AgentView(
        id=agent.id,
        status=status_at(agent, steady),
        type=agent.type,
        capabilities=agent.capabilities,
        max_tasks=agent.max_tasks,
        used=use.used,
        registered_at=agent.registered_at,
        silent_ms=max(steady - agent.seen_until, 0),
        units=[Unit(run_id=holder, expires_in_ms=end - steady) for holder, end in sorted(use.leases.items())],
    )


async def view_agents(stores: Stores) -> list[AgentView]:
    """All agents by name."""
    steady = stores.clock.steady()
    return [view(use, steady) for use in await stores.agents.list_agents()]


async def agents_in_the_way(stores: Stores, workers: Sequence[WorkerView]) -> Reason | None:
    """Why none of these workers may begin anything, if it is for want of their agents' units."""
    names = {each.worker.agent for each in workers}
    if not names or None in names:
        return None
    known = [agent for agent in await view_agents(stores) if agent.id in names]
    if not known or any(agent.status is AgentStatus.ACTIVE and agent.free for agent in known):
        return None
    states = {agent.id: _state(agent) for agent in known}
    shown = listed([f"{agent_id} ({state})" for agent_id, state in states.items()])
    sentence = f"every worker for it works for an agent that begins nothing now: {shown}"
    return Reason(code="agent_capacity", sentence=sentence, facts={"agents": states})


def _state(agent: AgentView) -> str:
    is_active = agent.status is AgentStatus.ACTIVE
    return f"{agent.used} of {agent.max_tasks} units in use" if is_active else str(agent.status)
