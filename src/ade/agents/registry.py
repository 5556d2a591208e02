"""What somebody does to an agent as a whole. It is told in the log, as everything that changes what runs."""

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
    """Make an agent known, or say anew what it is and may do. Raises InvalidAgent.

    What is None stays as it is known; an empty text or list takes away what was known.
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
    keep = [name for name, given in (("type", kind), ("capabilities", capabilities)) if given is None]
    return await stores.agents.register(agent, keep=keep, event=registration(agent, at=now, actor=actor))


async def set_status(stores: Stores, agent_id: str, status: AgentStatus, *, actor: str | None = None) -> Agent:
    """Let an agent begin new tasks, or no more; what it runs goes on. Raises UnknownAgent."""
    agent = await stores.agents.set_status(agent_id, status, _event(stores, EVENT_OF_STATUS[status], agent_id, actor))
    if agent is None:
        raise unknown(agent_id)
    return agent


async def remove(stores: Stores, agent_id: str, *, actor: str | None = None) -> None:
    """Forget an agent. Raises UnknownAgent."""
    if not await stores.agents.remove(agent_id, _event(stores, AGENT_REMOVED, agent_id, actor)):
        raise unknown(agent_id)


def unknown(agent_id: str, known: Iterable[str] = ()) -> UnknownAgent:
    """With the one that may have been meant, if there is such a one."""
    nearest = close_names(agent_id, known)
    meant = f"; did you mean {nearest[0]}?" if nearest else ""
    advice = "" if meant else UnknownAgent.usual_advice
    return UnknownAgent(f"no agent {agent_id[:100]!r} exists{meant}", advice=advice)


def _event(stores: Stores, kind: str, agent_id: str, actor: str | None) -> Event:
    return Event(type=kind, at=stores.clock.now(), actor=actor, payload={"agent": agent_id})
