"""HTTP operations on agents (registry, capacity, status) and on agent runs (`/subagents`).

An account owns an agent whose ID is the account's name, or starts with that name and a slash.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ade.accounts.model import Permission
from ade.agents import registry
from ade.agents.model import DESCRIPTION, MOST_TASKS, Agent, AgentStatus, is_agent_id
from ade.agents.views import AgentView, Subagent, SubagentStatus, view_agents
from ade.agents.views import get_subagent as find_subagent
from ade.agents.views import list_subagents as find_subagents
from ade.errors import InvalidAgent, UnknownTask
from ade.server.context import RequestContext, Services, check_own, cut, page, position, scope_of
from ade.server.operation import ReadRule, RouteAccess, TrafficClass, operation
from ade.server.pagination import Page
from ade.server.request_types import AgentType, Capability, Form, PageSize
from ade.tasks.api.tasks import readable_task
from ade.tasks.identifiers import is_task_id
from ade.tasks.model import MOST_CAPABILITIES

# Request types.


MaxTasks = Annotated[int, Meta(ge=1, le=MOST_TASKS)]


class ListAgents(Form):
    """Query parameters of `GET /agents`."""

    cursor: str | None = None
    limit: PageSize = 50


class RegisterAgent(Form):
    """What is not said stays as it is known; an empty text or list takes away what was known."""

    max_tasks: MaxTasks  # concurrent tasks, summed over all its workers
    type: AgentType | None = None
    capabilities: Annotated[list[Capability], Meta(max_length=MOST_CAPABILITIES)] | None = None


class SetCapacity(Form):
    """The number of tasks that an agent can run concurrently."""

    max_tasks: MaxTasks


class ListSubagents(Form):
    """Query parameters of `GET /subagents`, which returns the newest 1,000 runs at most."""

    json_names: ClassVar[Mapping[str, str]] = {"parent": "parent_id"}

    parent: str | None = None
    status: Literal["pending", "running", "completed", "error"] | None = None
    cursor: str | None = None
    limit: PageSize = 50


MOST_AGENTS = 1_000  # that one account can register for itself
_MOST_SUBAGENTS = 1_000
_own_agent = partial(operation, permission=(Permission.ENQUEUE, Permission.OPERATE), others=Permission.OPERATE)


@operation("GET /agents", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_agents(services: Services, request: RequestContext, query: ListAgents) -> Page[AgentView]:
    """Agents, and how much of their capacity is in use. A limited account sees its own."""
    return cut("agents", query, await _shown_agents(services, request))


@operation("GET /agents/{agent_id}", reads=ReadRule.SCOPED, permission=Permission.READ)
async def get_agent(services: Services, request: RequestContext, agent_id: str) -> AgentView:
    """One agent."""
    known = {agent.id: agent for agent in await _shown_agents(services, request)}
    if agent_id not in known:
        raise registry.unknown(agent_id, known)
    return known[agent_id]


async def _shown_agents(services: Services, request: RequestContext) -> list[AgentView]:
    found, scope = await view_agents(services.stores), scope_of(request.caller)
    return found if scope is None else [each for each in found if each.id.partition("/")[0].lower() == scope.account]


@operation("PUT /agents/{agent_id}/capacity", permission=Permission.OPERATE)
async def set_agent_capacity(services: Services, request: RequestContext, agent_id: str, body: SetCapacity) -> Agent:
    """Change how much it may do at once."""
    await _known(services, agent_id)
    return await registry.register(services.stores, agent_id, body.max_tasks, actor=request.actor)


@_own_agent("PUT /agents/{agent_id}")
async def register_agent(services: Services, request: RequestContext, agent_id: str, body: RegisterAgent) -> Agent:
    """Register an agent, with its type and capacity. A caller who can register only their own agents cannot change the
    capacity of a known one."""
    max_tasks = body.max_tasks
    if request.access is RouteAccess.OWN:
        await _check_own(services, request, agent_id)
        known = await _find(services, agent_id)
        if known is None:
            await _check_few(services, agent_id)
        max_tasks = max_tasks if known is None else known.max_tasks
    return await registry.register(
        services.stores, agent_id, max_tasks, kind=body.type, capabilities=body.capabilities, actor=request.actor
    )


@_own_agent("POST /agents/{agent_id}/heartbeat", traffic=TrafficClass.WORK, takes_key=False)
async def heartbeat_agent(services: Services, request: RequestContext, agent_id: str) -> Agent:
    """Say that it is there. An agent is shown as offline one minute after its last heartbeat."""
    await _check_own(services, request, agent_id)
    return await services.stores.agents.register(await _known(services, agent_id), keep=DESCRIPTION)


@_own_agent("POST /agents/{agent_id}/drain")
async def drain_agent(services: Services, request: RequestContext, agent_id: str) -> Agent:
    """Begin nothing new on it."""
    return await _set_status(services, request, agent_id, AgentStatus.DRAINING)


@_own_agent("POST /agents/{agent_id}/activate")
async def activate_agent(services: Services, request: RequestContext, agent_id: str) -> Agent:
    """Let it work again."""
    return await _set_status(services, request, agent_id, AgentStatus.ACTIVE)


@_own_agent("POST /agents/{agent_id}/offline")
async def mark_agent_offline(services: Services, request: RequestContext, agent_id: str) -> Agent:
    """Say that it is not there."""
    return await _set_status(services, request, agent_id, AgentStatus.OFFLINE)


async def _set_status(services: Services, request: RequestContext, agent_id: str, status: AgentStatus) -> Agent:
    await _check_own(services, request, agent_id)
    _check_id(agent_id)
    return await registry.set_status(services.stores, agent_id, status, actor=request.actor)


@operation("DELETE /agents/{agent_id}", permission=Permission.OPERATE)
async def remove_agent(services: Services, request: RequestContext, agent_id: str) -> None:
    """Forget an agent."""
    _check_id(agent_id)
    await registry.remove(services.stores, agent_id, actor=request.actor)


async def _check_few(services: Services, agent_id: str) -> None:
    """Limit the agents per account, because they persist and every worker reads them. Raises InvalidAgent."""
    account = agent_id.partition("/")[0].lower()  # IDs are matched case-insensitively
    uses = await services.stores.agents.list_agents()
    if sum(use.agent.id.partition("/")[0].lower() == account for use in uses) >= MOST_AGENTS:
        raise InvalidAgent(
            f"{account} has {MOST_AGENTS:,} agents, the maximum; an operator can remove those that are no longer used"
        )


async def _check_own(services: Services, request: RequestContext, agent_id: str) -> None:
    if request.access is RouteAccess.OWN:
        await check_own(services, request, agent_id.partition("/")[0], registry.unknown(agent_id))


def _check_id(agent_id: str) -> None:
    """Reject an invalid agent ID before the store is queried."""
    if not is_agent_id(agent_id):
        raise registry.unknown(agent_id)


async def _known(services: Services, agent_id: str) -> Agent:
    known = await _find(services, agent_id)
    if known is None:
        raise registry.unknown(agent_id)
    return known


async def _find(services: Services, agent_id: str) -> Agent | None:
    return next((use.agent for use in await services.stores.agents.list_agents() if use.agent.id == agent_id), None)


@operation("GET /subagents", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_subagents(services: Services, request: RequestContext, query: ListSubagents) -> Page[Subagent]:
    """Agents at work: for whom, how far, at what cost. Every page reads the ones before it again, so the list is
    capped."""
    if query.parent is not None and not is_task_id(query.parent):
        return Page(items=[])
    after = position("subagents", query)
    begin = min(after, _MOST_SUBAGENTS) if isinstance(after, int) and after >= 0 else 0
    end = min(begin + query.limit, _MOST_SUBAGENTS)
    status = None if query.status is None else SubagentStatus(query.status)
    scope = scope_of(request.caller)
    found = await find_subagents(services.stores, parent_id=query.parent, status=status, limit=end + 1, scope=scope)
    is_more = len(found) > end and end < _MOST_SUBAGENTS
    return page("subagents", query, found[begin:end], end if is_more else None)


@operation("GET /subagents/{task_id}", reads=ReadRule.SCOPED, permission=Permission.READ)
async def get_subagent(services: Services, request: RequestContext, task_id: str) -> Subagent:
    """One of them."""
    if not is_task_id(task_id):
        raise UnknownTask(f"no task with the id {task_id[:60]!r} exists; it may have been pruned")
    found = await find_subagent(services.stores, task_id)
    if scope_of(request.caller) is not None:
        await readable_task(services, request.caller, task_id)
    return found
