"""`ade agents`: how much each agent may do at once, and which of them begin nothing new."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ade.agents.model import Agent, AgentStatus
from ade.agents.views import AgentView, Subagent, SubagentStatus
from ade.cli.command import command, group, pass_session
from ade.cli.ids import find_id
from ade.cli.output import Cell, Row, all_of, first_of
from ade.cli.parameters import distance, local_with_distance, now_ms
from ade.cli.session import Session
from ade.server.wire_cli import view as fields_of
from ade.tasks.reasons import moment, short_span

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.common.calls import Call


AGENT_HEAD = ("agent", "status", "used", "max tasks", "type", "capabilities", "last seen", "registered")
UNIT_HEAD = ("run", "lease")
_STYLES = {AgentStatus.ACTIVE: "green", AgentStatus.DRAINING: "yellow", AgentStatus.OFFLINE: "bold red"}


@group("agents", bare="list")
def agents() -> None:
    """Agents and their capacity: list, show, register, drain. `ade agents` alone lists them."""


@agents.command("list")
@pass_session
def list_agents(session: Session) -> None:
    """List all agents, how they stand, and how many of their units are in use."""
    session.look(_list(session))


async def _list(session: Session) -> None:
    async with session.api() as api:
        seen = await all_of(api, api.list_agents)
    now = now_ms()
    if session.out.as_json:
        session.out.document({"agents": [_document(agent) for agent in seen]})
        return
    session.out.table(AGENT_HEAD, [_row(agent, now) for agent in seen])
    if not seen:
        session.out.note("No agent is known. `ade agents register ID --max-tasks N` makes one, or a worker's --agent.")


def _row(agent: AgentView, now: int) -> Row:
    return (
        agent.id,
        Cell(str(agent.status), _STYLES[agent.status]),
        str(agent.used),
        str(agent.max_tasks),
        agent.type or "",
        ", ".join(agent.capabilities),
        f"{short_span(agent.silent_ms)} ago" if agent.silent_ms else "now",
        distance(agent.registered_at, now=now),
    )


@agents.command("show")
@click.argument("agent_id", metavar="ID")
@pass_session
def show(session: Session, agent_id: str) -> None:
    """Show an agent and the runs that hold its units."""
    session.look(_show(session, agent_id))


async def _show(session: Session, agent_id: str) -> None:
    async with session.api() as api:
        agent = await api.get_agent(agent_id)
    if session.out.as_json:
        session.out.document(_document(agent))
        return
    session.out.table(AGENT_HEAD, [_row(agent, now_ms())])
    if agent.units:
        session.out.line("")
        session.out.table(UNIT_HEAD, [(unit.run_id, short_span(unit.expires_in_ms)) for unit in agent.units])


@agents.command("register")
@click.argument("agent_id", metavar="ID")
@click.option("--max-tasks", type=int, required=True, help="Tasks it may have at once, in all its workers together.")
@click.option("--type", "kind", help="What kind of agent it is, for people.")
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    metavar="WORD",
    help="Its workers can do this: tasks may need it; may be repeated, or use commas.",
)
@click.option("--no-capabilities", is_flag=True, help="Take away the capabilities it had.")
@pass_session
def register(
    session: Session,
    agent_id: str,
    max_tasks: int,
    kind: str | None,
    capabilities: tuple[str, ...],
    no_capabilities: bool,
) -> None:
    """Make an agent known, or say anew what it is and may do; what is not said stays. What runs goes on either way.

    Workers of the agent learn of other capabilities with their next heartbeat.
    """
    if capabilities and no_capabilities:
        raise click.UsageError("Give either --capability or --no-capabilities.")
    words = [word.strip() for each in capabilities for word in each.split(",") if word.strip()]
    session.run(_register(session, agent_id, max_tasks, kind, words if words or no_capabilities else None))


async def _register(
    session: Session, agent_id: str, max_tasks: int, kind: str | None, capabilities: list[str] | None
) -> None:
    async with session.api(must_exist=False) as api:
        _tell(session, await api.register_agent(agent_id, max_tasks=max_tasks, type=kind, capabilities=capabilities))


@agents.command("drain")
@click.argument("agent_id", metavar="ID")
@pass_session
def drain(session: Session, agent_id: str) -> None:
    """Let an agent begin nothing new, in none of its workers; what it runs goes on."""
    session.run(_change(session, lambda api: api.drain_agent(agent_id)))


@agents.command("activate")
@click.argument("agent_id", metavar="ID")
@pass_session
def activate(session: Session, agent_id: str) -> None:
    """Let an agent begin tasks again."""
    session.run(_change(session, lambda api: api.activate_agent(agent_id)))


@agents.command("offline")
@click.argument("agent_id", metavar="ID")
@pass_session
def offline(session: Session, agent_id: str) -> None:
    """Mark an agent as not there: it begins nothing, and is not expected to be heard of."""
    session.run(_change(session, lambda api: api.mark_agent_offline(agent_id)))


async def _change(session: Session, change: "Callable[[Client], Call[Agent]]") -> None:
    async with session.api() as api:
        _tell(session, await change(api))


@agents.command("remove")
@click.argument("agent_id", metavar="ID")
@pass_session
def remove(session: Session, agent_id: str) -> None:
    """Forget an agent. Workers that still run under its name make it known again."""
    session.run(_remove(session, agent_id))


async def _remove(session: Session, agent_id: str) -> None:
    async with session.api() as api:
        await api.remove_agent(agent_id)
    if session.out.as_json:
        session.out.document({"removed": agent_id})
    else:
        session.out.line(f"{agent_id}: removed")


def _tell(session: Session, agent: Agent) -> None:
    if session.out.as_json:
        known: dict[str, Any] = {"id": agent.id, "type": agent.type, "status": agent.status}
        more = {"capabilities": agent.capabilities, "max_tasks": agent.max_tasks}
        session.out.document({**known, **more, "registered_at": moment(agent.registered_at)})
    else:
        kind = f" ({agent.type})" if agent.type else ""
        can = f", can {', '.join(agent.capabilities)}" if agent.capabilities else ""
        session.out.line(f"{agent.id}{kind}: {agent.status}, at most {agent.max_tasks} tasks at once{can}")


def _document(agent: AgentView) -> dict[str, Any]:
    more = {"capabilities": agent.capabilities, "registered_at": moment(agent.registered_at), "free": agent.free}
    return {**fields_of(agent), **more}


# `ade subagents`: which agents are at work, for whom, and what became of them.


HEAD = ("id", "type", "status", "tools", "tokens", "took", "begun", "model", "description")
_SPARE = ("model", "begun", "tools")
_STYLES_SUBAGENTS = {
    SubagentStatus.PENDING: "yellow",
    SubagentStatus.RUNNING: "bold blue",
    SubagentStatus.COMPLETED: "green",
    SubagentStatus.ERROR: "bold red",
}


@command("subagents")
@click.argument("task_id", metavar="[ID]", required=False)
@click.option("--parent", metavar="ID", help="Only those that this task has begun.")
@click.option("--status", type=click.Choice([str(status) for status in SubagentStatus]), help="Only those.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most so many.")
@pass_session
def subagents(session: Session, task_id: str | None, parent: str | None, status: str | None, limit: int) -> None:
    """List agents at work and those that are done, newest first; with an ID all that is known about one."""
    session.look(
        _show_subagents(session, task_id) if task_id is not None else _list_subagents(session, parent, status, limit)
    )


async def _list_subagents(session: Session, parent: str | None, status: str | None, limit: int) -> None:
    async with session.api() as api:
        parent_id = None if parent is None else await find_id(api, parent)
        found = await first_of(api.list_subagents, limit=limit, parent=parent_id, status=status)
    now = now_ms()
    if session.out.as_json:
        session.out.document({"subagents": [_document_subagents(each) for each in found]})
        return
    session.out.table(HEAD, [_row_subagents(each, now) for each in found], _SPARE)
    if not found:
        session.out.note("No agent fits. `ade run --agent TYPE PROMPT` lets one work.")


def _row_subagents(seen: Subagent, now: int) -> Row:
    return (
        seen.id,
        seen.type,
        Cell(str(seen.status), _STYLES_SUBAGENTS[seen.status]),
        str(seen.tool_calls),
        "" if seen.tokens is None else f"{seen.tokens:,}",
        "" if seen.duration_ms is None else short_span(seen.duration_ms),
        "" if seen.started_at is None else distance(seen.started_at, now=now),
        seen.model or "",
        seen.description.partition("\n")[0],
    )


async def _show_subagents(session: Session, task_id: str) -> None:
    async with session.api() as api:
        seen = await api.get_subagent(await find_id(api, task_id))
    now = now_ms()
    if session.out.as_json:
        session.out.document(_document_subagents(seen))
        return
    session.out.facts(
        [
            ("id", seen.id),
            ("type", seen.type),
            ("description", seen.description),
            ("status", Cell(str(seen.status), _STYLES_SUBAGENTS[seen.status])),
            ("parent", seen.parent_id or ""),
            ("model", seen.model or ""),
            ("url", seen.url or ""),
            ("session", seen.session_id or ""),
            ("agent", seen.agent_id or ""),
            ("conversation", seen.conversation_id or ""),
            ("begun", local_with_distance(seen.started_at, now=now)),
            ("took", "" if seen.duration_ms is None else short_span(seen.duration_ms)),
            ("attempt", str(seen.attempt)),
            ("tool calls", str(seen.tool_calls)),
            ("tokens", "" if seen.tokens is None else f"{seen.tokens:,}"),
            ("cost", "" if seen.cost_usd is None else f"${seen.cost_usd:.4g}"),
            ("turns", "" if seen.turns is None else str(seen.turns)),
            ("transcript", seen.output_file or ""),
            ("error", seen.error or ""),
        ]
    )
    for call in seen.recent_tool_calls:
        session.out.line(f"  [tool] {call.name} {call.arguments}".rstrip())


def _document_subagents(seen: Subagent) -> dict[str, Any]:
    return fields_of(seen)
