"""Agents: who they are, how much they may do at once, and which of them are at work.

An agent is an account's own if it has its name, or begins with its name and a slash.
"""

from ade.core.agents import DESCRIPTION, Agent, AgentStatus, is_agent_id
from ade.core.errors import InvalidAgent, UnknownTask
from ade.core.ids import is_task_id
from ade.core.web.access import Access
from ade.core.web.forms.agents import ListAgents, ListSubagents, RegisterAgent, SetCapacity
from ade.governance import agents as use_cases
from ade.insight.agents import AgentView, view_agents
from ade.insight.subagents import Subagent, SubagentStatus
from ade.insight.subagents import get_subagent as find_subagent
from ade.insight.subagents import list_subagents as find_subagents
from ade.operations.kit import Asked, Office, Page
from ade.operations.owning import check_own
from ade.operations.paging import cut, page, position

MOST_AGENTS = 1_000  # that an account registers itself
_MOST_SUBAGENTS = 1_000


async def list_agents(office: Office, asked: Asked, query: ListAgents) -> Page[AgentView]:
    return cut("agents", query, await view_agents(office.stores))


async def get_agent(office: Office, asked: Asked, agent_id: str) -> AgentView:
    known = {agent.id: agent for agent in await view_agents(office.stores)}
    if agent_id not in known:
        raise use_cases.unknown(agent_id, known)
    return known[agent_id]


async def register_agent(office: Office, asked: Asked, agent_id: str, body: RegisterAgent) -> Agent:
    """Who may register only his own may not change how much it may do: that is set when it is first known."""
    max_tasks = body.max_tasks
    if asked.access is Access.OWN:
        await _check_own(office, asked, agent_id)
        known = await _find(office, agent_id)
        if known is None:
            await _check_few(office, agent_id)
        max_tasks = max_tasks if known is None else known.max_tasks
    return await use_cases.register(
        office.stores, agent_id, max_tasks, kind=body.type, capabilities=body.capabilities, actor=asked.actor
    )


async def heartbeat_agent(office: Office, asked: Asked, agent_id: str) -> Agent:
    """It is shown as offline a minute after the last one."""
    await _check_own(office, asked, agent_id)
    return await office.stores.agents.register(await _known(office, agent_id), keep=DESCRIPTION)


async def set_agent_capacity(office: Office, asked: Asked, agent_id: str, body: SetCapacity) -> Agent:
    await _known(office, agent_id)
    return await use_cases.register(office.stores, agent_id, body.max_tasks, actor=asked.actor)


async def drain_agent(office: Office, asked: Asked, agent_id: str) -> Agent:
    return await _set_status(office, asked, agent_id, AgentStatus.DRAINING)


async def activate_agent(office: Office, asked: Asked, agent_id: str) -> Agent:
    return await _set_status(office, asked, agent_id, AgentStatus.ACTIVE)


async def mark_agent_offline(office: Office, asked: Asked, agent_id: str) -> Agent:
    return await _set_status(office, asked, agent_id, AgentStatus.OFFLINE)


async def _set_status(office: Office, asked: Asked, agent_id: str, status: AgentStatus) -> Agent:
    await _check_own(office, asked, agent_id)
    _check_id(agent_id)
    return await use_cases.set_status(office.stores, agent_id, status, actor=asked.actor)


async def remove_agent(office: Office, asked: Asked, agent_id: str) -> None:
    _check_id(agent_id)
    await use_cases.remove(office.stores, agent_id, actor=asked.actor)


async def _check_few(office: Office, agent_id: str) -> None:
    """They stay until somebody removes them, and are read by every worker that works for one. Raises InvalidAgent."""
    account = agent_id.partition("/")[0].lower()  # however it is spelled
    uses = await office.stores.agents.list_agents()
    if sum(use.agent.id.partition("/")[0].lower() == account for use in uses) >= MOST_AGENTS:
        raise InvalidAgent(
            f"{account} has {MOST_AGENTS:,} agents, and registers no more; an operator can remove those that are gone"
        )


async def _check_own(office: Office, asked: Asked, agent_id: str) -> None:
    if asked.access is Access.OWN:
        await check_own(office, asked, agent_id.partition("/")[0], use_cases.unknown(agent_id))


def _check_id(agent_id: str) -> None:
    """What is no id is not looked for."""
    if not is_agent_id(agent_id):
        raise use_cases.unknown(agent_id)


async def _known(office: Office, agent_id: str) -> Agent:
    known = await _find(office, agent_id)
    if known is None:
        raise use_cases.unknown(agent_id)
    return known


async def _find(office: Office, agent_id: str) -> Agent | None:
    return next((use.agent for use in await office.stores.agents.list_agents() if use.agent.id == agent_id), None)


async def list_subagents(office: Office, asked: Asked, query: ListSubagents) -> Page[Subagent]:
    """Those of before are read again for each page, so there is an end to it."""
    if query.parent is not None and not is_task_id(query.parent):
        return Page(items=[])
    after = position("subagents", query)
    begin = min(after, _MOST_SUBAGENTS) if isinstance(after, int) and after >= 0 else 0
    end = min(begin + query.limit, _MOST_SUBAGENTS)
    status = None if query.status is None else SubagentStatus(query.status)
    found = await find_subagents(office.stores, parent_id=query.parent, status=status, limit=end + 1)
    is_more = len(found) > end and end < _MOST_SUBAGENTS
    return page("subagents", query, found[begin:end], end if is_more else None)


async def get_subagent(office: Office, asked: Asked, task_id: str) -> Subagent:
    if not is_task_id(task_id):
        raise UnknownTask(f"no task with the id {task_id[:60]!r} exists; it may have been pruned")
    return await find_subagent(office.stores, task_id)
