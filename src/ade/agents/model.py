"""Agents and how much each may do at once: a set of leases, one for each unit, and never a counter."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum, auto

from msgspec import Struct, structs

from ade.errors import InvalidAgent
from ade.events.model import Event
from ade.tasks.model import capabilities_of

DESCRIPTION = ("max_tasks", "type", "capabilities")  # fields that a registration may change
MOST_TASKS = 1_000_000
OFFLINE_AFTER_MS = 60_000  # an agent that was not heard of for so long is shown as offline
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,99}")
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")


class AgentStatus(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    ACTIVE = auto()
    DRAINING = auto()  # nothing new is begun; what runs goes on
    OFFLINE = auto()  # the same, set by hand for an agent that is not there


class Agent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who does work, in any number of workers, and how many tasks at once it may have in all of them."""

    id: str
    max_tasks: int
    type: str | None = None  # what kind of agent it is, for people
    capabilities: tuple[str, ...] = ()  # sorted: what each of its workers can do
    status: AgentStatus = AgentStatus.ACTIVE
    registered_at: int = 0
    seen_until: int = 0  # steady time: until when its last sign of life counts


class AgentUse(Struct, frozen=True, kw_only=True):
    """An agent, and the live leases of its units: holder -> end of the lease (steady time)."""

    agent: Agent
    leases: dict[str, int]

    @property
    def used(self) -> int:
        return len(self.leases)


AGENT_REGISTERED, AGENT_REMOVED = "agent.registered", "agent.removed"
EVENT_OF_STATUS: Mapping[AgentStatus, str] = {status: f"agent.{status}" for status in AgentStatus}


def is_agent_id(text: str) -> bool:
    return _AGENT.fullmatch(text) is not None


def check_agent(agent_id: str, max_tasks: int) -> None:
    """Raise InvalidAgent unless there may be such an agent."""
    if not is_agent_id(agent_id):
        raise InvalidAgent(
            f"agent {agent_id[:120]!r} is not a valid name: begin with a letter or digit, then letters, digits, '.',"
            " '_', ':', '@', '/' and '-', at most 100"
        )
    if type(max_tasks) is not int or not 1 <= max_tasks <= MOST_TASKS:
        raise InvalidAgent(f"max_tasks of agent {agent_id} is 1 to {MOST_TASKS:,}, not {max_tasks!r}")


def check_type(kind: str) -> None:
    """Raise InvalidAgent unless an agent may be of such a type."""
    if not _TYPE.fullmatch(kind):
        raise InvalidAgent(
            f"{kind[:60]!r} is not a valid type of agents: begin with a letter or digit, then letters, digits, '.', '_'"
            " and '-', at most 50"
        )


def check_capabilities(agent_id: str, words: Iterable[str]) -> tuple[str, ...]:
    """The words as an agent keeps them. Raises InvalidAgent."""
    return capabilities_of(words, f"agent {agent_id}", InvalidAgent)


def described(known: Agent, agent: Agent, keep: Collection[str] = ()) -> Agent:
    """A known agent as it is described anew; of the fields of DESCRIPTION those in `keep` stay as they are."""
    return structs.replace(known, **{name: getattr(agent, name) for name in DESCRIPTION if name not in keep})


def granted(agent: Agent, wanted: Sequence[str], live: Collection[str]) -> list[str]:
    """Which of these holders have a unit afterwards.

    Whoever has one keeps it; the others get one in their order, as long as there is room. Nobody gets one from an agent
    that is not active, or that has as many as it may, however it came to that.
    """
    room = max(agent.max_tasks - len(live), 0) if agent.status is AgentStatus.ACTIVE else 0
    new = [holder for holder in dict.fromkeys(wanted) if holder not in live][:room]
    return [holder for holder in dict.fromkeys(wanted) if holder in live or holder in new]


def status_at(agent: Agent, steady: int) -> AgentStatus:
    """How an agent stands: as it was set, or offline when nobody has heard of it for long."""
    is_silent = steady - agent.seen_until > OFFLINE_AFTER_MS
    return AgentStatus.OFFLINE if is_silent else agent.status


def registration(agent: Agent, *, at: int, actor: str | None = None) -> Event:
    """The event that tells of a new agent, or of what it may do from now on."""
    payload: dict[str, object] = {"agent": agent.id, "max_tasks": agent.max_tasks}
    if agent.type is not None:
        payload["type"] = agent.type
    if agent.capabilities:
        payload["capabilities"] = list(agent.capabilities)
    return Event(type=AGENT_REGISTERED, at=at, actor=actor, payload=payload)
