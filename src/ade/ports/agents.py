"""The seam for agents: who they are, and who holds the units of their capacity."""

from collections.abc import Collection, Sequence
from typing import Protocol

from ade.core.agents import Agent, AgentStatus, AgentUse
from ade.core.events import Event


class AgentStore(Protocol):
    """Every verb is one write. Whoever could not get a unit is told by AGENT when there may be one again.

    A holder is a run; it has one unit, for as long as its lease. Leases that ran out count for nothing.
    """

    async def register(self, agent: Agent, *, keep: Collection[str] = (), event: Event | None = None) -> Agent:
        """Make an agent known, or describe it anew; it is then heard of. Answers how it stands now.

        Of a known one only the fields of DESCRIPTION change, without those in `keep`. The event is entered if one did.
        """

    async def set_status(self, agent_id: str, status: AgentStatus, event: Event | None = None) -> Agent | None:
        """Let it begin new tasks, or no more; None when it is not known. The event is entered if that is news."""

    async def take(
        self, agent_id: str, holders: Sequence[str], *, lease_ms: int, over: Sequence[str] = ()
    ) -> list[str]:
        """Units for as many of these as may have one, in their order; those that have one keep it. None if unknown.

        First the units of those who are `over` are given back.
        """

    def renew(self, agent: Agent, holders: Sequence[str], *, lease_ms: int) -> Agent:
        """Set the leases of these anew, and keep the agent seen. Answers how it stands now.

        A holder whose lease ran out gets one again, whatever the limit: it is at work. An agent that is not known any
        more is entered as it was given.

        Blocking, on a connection of its own: called from the worker's lease thread, never from an event loop.
        """

    async def release(self, agent_id: str, holders: Sequence[str]) -> None:
        """Give units back; those that are gone already are no error."""

    async def list_agents(self) -> list[AgentUse]:
        """All agents by name, with the leases that are live."""

    async def remove(self, agent_id: str, event: Event | None = None) -> bool:
        """Forget an agent and its units; False when it is not known. One that is at work is soon known again."""
