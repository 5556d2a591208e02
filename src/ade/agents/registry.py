"""Changes to registered agents: register, set the status, and remove. Each is recorded in the event log."""

from collections.abc import Iterable

from ade.agents.model import (
    AGENT_REMOVED,
    EVENT_OF_STATUS,
    Agent,
    AgentStatus,
    check_agent,
    check_capabilities,
    check_type,
    registration,
)
from ade.errors import UnknownAgent, close_names
from ade.events.model import Event
from ade.stores.ports import Stores


async def register(
    stores: Stores,
    agent_id: str,
    max_tasks: int,
    *,
    kind: str | None = None,
    capabilities: Iterable[str] | None = None,
    actor: str | None = None,
) -> Agent:
    """Register an agent, or update its description. Raises InvalidAgent.

    None keeps the stored value; an empty string or list removes it.
    """
    check_agent(agent_id, max_tasks)
    if kind:
        check_type(kind)
    now = stores.clock.now()
    agent = Agent(
        id=agent_id,
        max_tasks=max_tasks,
        type=kind or None,
        capabilities=check_capabilities(agent_id, capabilities or ()),
        registered_at=now,
    )
    keep = [name for name, value in (("type", kind), ("capabilities", capabilities)) if value is None]
    return await stores.agents.register(agent, keep=keep, event=registration(agent, at=now, actor=actor))


async def set_status(stores: Stores, agent_id: str, status: AgentStatus, *, actor: str | None = None) -> Agent:
    """Allow an agent to start new tasks, or stop it from doing so. Running tasks continue. Raises UnknownAgent."""
    agent = await stores.agents.set_status(agent_id, status, _event(stores, EVENT_OF_STATUS[status], agent_id, actor))
    if agent is None:
        raise unknown(agent_id)
    return agent


async def remove(stores: Stores, agent_id: str, *, actor: str | None = None) -> None:
    """Remove an agent. Raises UnknownAgent."""
    if not await stores.agents.remove(agent_id, _event(stores, AGENT_REMOVED, agent_id, actor)):
        raise unknown(agent_id)


def unknown(agent_id: str, known: Iterable[str] = ()) -> UnknownAgent:
    """Build the UnknownAgent error, with the closest known ID as a suggestion."""
    nearest = close_names(agent_id, known)
    meant = f"; did you mean {nearest[0]}?" if nearest else ""
    advice = "" if meant else UnknownAgent.usual_advice
    return UnknownAgent(f"no agent {agent_id[:100]!r} exists{meant}", advice=advice)


def _event(stores: Stores, kind: str, agent_id: str, actor: str | None) -> Event:
    return Event(type=kind, at=stores.clock.now(), actor=actor, payload={"agent": agent_id})
