"""Agents and their capacity, modeled as one lease per unit instead of a counter, which could drift."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum, auto

from msgspec import Struct, structs

from ade.errors import InvalidAgent
from ade.events.model import Event
from ade.tasks.model import capabilities_of

DESCRIPTION = ("max_tasks", "type", "capabilities")  # fields that a registration can change
MOST_TASKS = 1_000_000
OFFLINE_AFTER_MS = 60_000  # an agent without a heartbeat for this long is shown as offline
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,99}")
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")


class AgentStatus(StrEnum):
    """Whether an agent accepts tasks."""

    __hash__ = str.__hash__  # the Enum's own __hash__ is a Python function, which is slower

    ACTIVE = auto()
    DRAINING = auto()  # starts nothing new; running tasks continue
    OFFLINE = auto()  # the same, set manually for an absent agent


class Agent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who does work, in any number of workers, and how many tasks at once it may have in all of them."""

    id: str
    max_tasks: int
    type: str | None = None  # free text for people
    capabilities: tuple[str, ...] = ()  # sorted; shared by all its workers
    status: AgentStatus = AgentStatus.ACTIVE
    registered_at: int = 0
    seen_until: int = 0  # steady time at which its last heartbeat expires


class AgentUse(Struct, frozen=True, kw_only=True):
    """An agent, and the live leases on its units: lease holder -> expiry (steady time)."""

    agent: Agent
    leases: dict[str, int]

    @property
    def used(self) -> int:
        return len(self.leases)


AGENT_REGISTERED, AGENT_REMOVED = "agent.registered", "agent.removed"
EVENT_OF_STATUS: Mapping[AgentStatus, str] = {status: f"agent.{status}" for status in AgentStatus}


def is_agent_id(text: str) -> bool:
    """Return whether the text is a valid agent ID."""
    return _AGENT.fullmatch(text) is not None


def check_agent(agent_id: str, max_tasks: int) -> None:
    """Raise InvalidAgent unless the agent's fields are valid."""
    if not is_agent_id(agent_id):
        raise InvalidAgent(
            f"agent {agent_id[:120]!r} is not a valid name: begin with a letter or digit, then letters, digits, '.',"
            " '_', ':', '@', '/' and '-', at most 100"
        )
    if type(max_tasks) is not int or not 1 <= max_tasks <= MOST_TASKS:
        raise InvalidAgent(f"max_tasks of agent {agent_id} is 1 to {MOST_TASKS:,}, not {max_tasks!r}")


def check_type(kind: str) -> None:
    """Raise InvalidAgent unless the type is valid."""
    if not _TYPE.fullmatch(kind):
        raise InvalidAgent(
            f"{kind[:60]!r} is not a valid type of agents: begin with a letter or digit, then letters, digits, '.', '_'"
            " and '-', at most 50"
        )


def check_capabilities(agent_id: str, words: Iterable[str]) -> tuple[str, ...]:
    """Return the normalized capabilities. Raises InvalidAgent."""
    return capabilities_of(words, f"agent {agent_id}", InvalidAgent)


def described(known: Agent, agent: Agent, keep: Collection[str] = ()) -> Agent:
    """Return the known agent with the new description; DESCRIPTION fields listed in `keep` stay unchanged."""
    return structs.replace(known, **{name: getattr(agent, name) for name in DESCRIPTION if name not in keep})


def granted(agent: Agent, holders: Sequence[str], live: Collection[str]) -> list[str]:
    """Return the holders that have a unit after this request.

    Existing holders keep theirs. The others get one in order while capacity remains. An agent that is not active, or
    that is at or over its limit, grants none.
    """
    room = max(agent.max_tasks - len(live), 0) if agent.status is AgentStatus.ACTIVE else 0
    new = [holder for holder in dict.fromkeys(holders) if holder not in live][:room]
    return [holder for holder in dict.fromkeys(holders) if holder in live or holder in new]


def status_at(agent: Agent, steady: int) -> AgentStatus:
    """Return the status of an agent: as it was set, or offline when its last heartbeat has expired."""
    is_silent = steady - agent.seen_until > OFFLINE_AFTER_MS
    return AgentStatus.OFFLINE if is_silent else agent.status


def registration(agent: Agent, *, at: int, actor: str | None = None) -> Event:
    """Return the event for a new agent or a changed description."""
    payload: dict[str, object] = {"agent": agent.id, "max_tasks": agent.max_tasks}
    if agent.type is not None:
        payload["type"] = agent.type
    if agent.capabilities:
        payload["capabilities"] = list(agent.capabilities)
    return Event(type=AGENT_REGISTERED, at=at, actor=actor, payload=payload)
