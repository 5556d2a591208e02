"""Read-only views of agent runs and of agents with their capacity, computed from task records and leases."""

from collections.abc import Sequence
from enum import StrEnum, auto

from msgspec import Struct

from ade.agents.model import AgentStatus, AgentUse, status_at
from ade.agents.protocols.base import ToolCalled, UsageReported
from ade.agents.runs.messages import duration_of, error_of, spent_by
from ade.agents.runs.model import AgentProgress, AgentResult, progress_in, result_in
from ade.errors import UnknownTask
from ade.stores.ports import Stores, TaskQuery
from ade.tasks.identifiers import is_run, type_of
from ade.tasks.lifecycle import FINAL, Status
from ade.tasks.model import Task
from ade.tasks.read_access import ReadScope
from ade.tasks.reasons import Reason, listed
from ade.tasks.service import get
from ade.worker.views import WorkerView, queued_by_agent, view_workers

_PAGE = 200
_OF_RUN = ("model", "url", "session_id", "agent_id", "conversation_id", "output_file")  # in result and progress


class SubagentStatus(StrEnum):
    """The state of a subagent."""

    PENDING = auto()
    RUNNING = auto()
    COMPLETED = auto()
    ERROR = auto()  # failed, cancelled, or rejected


_STATUSES = {
    SubagentStatus.RUNNING: frozenset({Status.RUNNING, Status.STALLED}),
    SubagentStatus.COMPLETED: frozenset({Status.COMPLETED}),
    SubagentStatus.ERROR: FINAL - {Status.COMPLETED},
}
_STATUSES[SubagentStatus.PENDING] = frozenset(Status).difference(*_STATUSES.values())


class Subagent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent at work, or done. What its program does not tell is None."""

    id: str  # task ID
    type: str  # capitalized for display
    description: str
    status: SubagentStatus
    parent_id: str | None = None
    tool_calls: int = 0
    recent_tool_calls: tuple[ToolCalled, ...] = ()
    tokens: int | None = None  # all attempts together, as the next two
    cost_usd: float | None = None
    turns: int | None = None
    duration_ms: int | None = None  # until now, while it is running
    model: str | None = None
    url: str | None = None
    started_at: int | None = None
    created_at: int = 0
    attempt: int = 0
    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    output_file: str | None = None
    said: str = ""  # the latest text
    error: str | None = None


def subagent_of(task: Task, *, now: int) -> Subagent:
    """Return the view of a task. A large result is not loaded, because the last progress has nearly the same data."""
    status = next(status for status, statuses in _STATUSES.items() if task.status in statuses)
    result = result_in(task.result) if status is SubagentStatus.COMPLETED else None
    progress = progress_in(task.progress)
    known, spent = result or progress, _spent(result, progress)
    return Subagent(
        id=task.id,
        type=shown_type(type_of(task.name)),
        description=task.description or type_of(task.name),
        status=status,
        parent_id=task.parent_id,
        tool_calls=max(result.tool_calls if result else 0, progress.tool_call_count if progress else 0),
        recent_tool_calls=progress.tool_calls if progress else (),
        tokens=spent.tokens,
        cost_usd=spent.cost_usd,
        turns=spent.turns,
        duration_ms=_duration(task, result, now),
        started_at=task.started_at,
        created_at=task.created_at,
        attempt=task.attempt,
        **({name: getattr(known, name) for name in _OF_RUN} if known else {}),
        said=progress.said if progress else "",
        error=error_of(task) if status is SubagentStatus.ERROR else None,
    )


def shown_type(subagent_type: str) -> str:
    """Return the type, capitalized for display."""
    return subagent_type[:1].upper() + subagent_type[1:]


async def list_subagents(
    stores: Stores,
    *,
    parent_id: str | None = None,
    status: SubagentStatus | None = None,
    limit: int = 50,
    scope: ReadScope | None = None,
) -> list[Subagent]:
    """Return agent runs, newest first, optionally filtered by parent or status, or by what a limited account reads."""
    statuses = frozenset[Status]() if status is None else _STATUSES[status]
    if parent_id is not None:
        found = await _children(stores, parent_id, statuses, limit, scope)
    else:
        names = sorted({tally.name for tally in await stores.queues.tallies() if is_run(tally.name)})
        found = []
        for name in names:
            query = TaskQuery(name=name, statuses=statuses, limit=limit, scope=scope)
            found += (await stores.tasks.find(query)).tasks
    now = stores.clock.now()
    newest = sorted(found, key=lambda task: (task.created_at, task.id), reverse=True)[:limit]
    return [subagent_of(task, now=now) for task in newest]


async def get_subagent(stores: Stores, task_id: str) -> Subagent:
    """Return one agent run. Raises UnknownTask, also for a task that is not an agent run."""
    task = await get(stores, task_id)
    if not is_run(task.name):
        raise UnknownTask(f"task {task_id} does not run an agent, but {task.name}", advice="`ade show` shows it")
    return subagent_of(task, now=stores.clock.now())


async def _children(
    stores: Stores, parent_id: str, statuses: frozenset[Status], limit: int, scope: ReadScope | None
) -> list[Task]:
    """A parent can also have children that are not agent runs."""
    found: list[Task] = []
    after: int | None = None
    while True:
        query = TaskQuery(parent_id=parent_id, statuses=statuses, after=after, limit=_PAGE, scope=scope)
        page = await stores.tasks.find(query)
        found += [task for task in page.tasks if is_run(task.name)]
        after = page.next
        if after is None or len(found) >= limit:
            return found


def _spent(result: AgentResult | None, progress: AgentProgress | None) -> UsageReported:
    if result is not None:
        return UsageReported(tokens=result.tokens, cost_usd=result.cost_usd, turns=result.turns)
    return UsageReported() if progress is None else spent_by(progress)


def _duration(task: Task, result: AgentResult | None, now: int) -> int | None:
    if task.started_at is not None and task.status is Status.RUNNING:
        return max(now - task.started_at, 0)
    return duration_of(task, result)


# Agents with their status and used capacity.


class CapacityUnit(Struct, frozen=True, kw_only=True):
    """A unit in use."""

    run_id: str
    expires_in_ms: int


class AgentView(Struct, frozen=True, kw_only=True):
    """An agent, its capacity, and how much of it is in use."""

    id: str
    status: AgentStatus  # also offline when its last heartbeat has expired
    type: str | None = None
    capabilities: tuple[str, ...]
    max_tasks: int
    used: int
    queued_tasks: int = 0  # waiting tasks of the queues and names that its workers serve
    registered_at: int
    silent_ms: int  # since its last heartbeat expired
    units: list[CapacityUnit]

    @property
    def free(self) -> int:
        return max(self.max_tasks - self.used, 0)


def view(use: AgentUse, steady: int, queued_tasks: int = 0) -> AgentView:
    """Return the view of an agent; `steady` is the current steady time."""
    agent = use.agent
    return AgentView(
        id=agent.id,
        status=status_at(agent, steady),
        type=agent.type,
        capabilities=agent.capabilities,
        max_tasks=agent.max_tasks,
        used=use.used,
        queued_tasks=queued_tasks,
        registered_at=agent.registered_at,
        silent_ms=max(steady - agent.seen_until, 0),
        units=[CapacityUnit(run_id=holder, expires_in_ms=end - steady) for holder, end in sorted(use.leases.items())],
    )


async def view_agents(stores: Stores) -> list[AgentView]:
    """Return all agents by name."""
    steady, uses = stores.clock.steady(), await stores.agents.list_agents()
    queued = queued_by_agent(await view_workers(stores), await stores.queues.tallies()) if uses else {}
    return [view(use, steady, queued.get(use.agent.id, 0)) for use in uses]


async def blocking_agents(stores: Stores, workers: Sequence[WorkerView]) -> Reason | None:
    """Return why none of these workers can start anything, if their agents have no free units."""
    names = {each.worker.agent for each in workers}
    if not names or None in names:
        return None
    steady = stores.clock.steady()
    known = [view(use, steady) for use in await stores.agents.list_agents() if use.agent.id in names]
    if not known or any(agent.status is AgentStatus.ACTIVE and agent.free for agent in known):
        return None
    states = {agent.id: _state(agent) for agent in known}
    shown = listed([f"{agent_id} ({state})" for agent_id, state in states.items()])
    sentence = f"every worker for it belongs to an agent that starts no tasks now: {shown}"
    return Reason(code="agent_capacity", sentence=sentence, facts={"agents": states})


def _state(agent: AgentView) -> str:
    is_active = agent.status is AgentStatus.ACTIVE
    return f"{agent.used} of {agent.max_tasks} units in use" if is_active else str(agent.status)
