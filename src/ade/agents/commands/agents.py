"""`ade agents` and `ade subagents`: manage agents and their capacity, and list agent runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ade.agents.model import Agent, AgentStatus
from ade.agents.views import AgentView, Subagent, SubagentStatus
from ade.cli.command import command, group
from ade.cli.ids import find_id
from ade.cli.output import Cell, Row, all_of, first_page
from ade.cli.parameters import distance, local_with_distance, now_ms
from ade.tasks.reasons import short_span

if TYPE_CHECKING:
    from ade.cli.session import Session


AGENT_HEAD = ("agent", "status", "used", "max tasks", "queued", "type", "capabilities", "last seen", "registered")
UNIT_HEAD = ("run", "lease")
_STYLES = {AgentStatus.ACTIVE: "green", AgentStatus.DRAINING: "yellow", AgentStatus.OFFLINE: "bold red"}


@group("agents", bare="list")
def agents() -> None:
    """Agents and their capacity: list, show, register, drain. `ade agents` alone lists them."""


@agents.command("list", reads=True)
async def list_agents(session: "Session") -> None:
    """List all agents with their status, the units in use, and how many tasks wait for their workers."""
    async with session.api() as api:
        found = await all_of(api, api.list_agents)
    if session.out.as_json:
        session.out.items(found)
        return
    session.out.table(AGENT_HEAD, _agent_rows(found))
    if not found:
        session.out.note(
            "No agents. `ade agents register ID --max-tasks N` creates one; so does a worker started with --agent."
        )


def _agent_rows(found: Sequence[AgentView]) -> list[Row]:
    now = now_ms()
    return [
        (
            agent.id,
            Cell(str(agent.status), _STYLES[agent.status]),
            str(agent.used),
            str(agent.max_tasks),
            str(agent.queued_tasks),
            agent.type or "",
            ", ".join(agent.capabilities),
            f"{short_span(agent.silent_ms)} ago" if agent.silent_ms else "now",
            distance(agent.registered_at, now=now),
        )
        for agent in found
    ]


@agents.command("show", reads=True)
@click.argument("agent_id", metavar="ID")
async def show(session: "Session", agent_id: str) -> None:
    """Show an agent and the runs that hold its units."""
    async with session.api() as api:
        agent = await api.get_agent(agent_id)
    if session.out.as_json:
        session.out.document(agent)
        return
    session.out.table(AGENT_HEAD, _agent_rows([agent]))
    if agent.units:
        session.out.line("")
        session.out.table(UNIT_HEAD, [(unit.run_id, short_span(unit.expires_in_ms)) for unit in agent.units])


@agents.command("register")
@click.argument("agent_id", metavar="ID")
@click.option("--max-tasks", type=int, required=True, help="Maximum concurrent tasks, across all its workers.")
@click.option("--type", "kind", help="What kind of agent it is, for people.")
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    metavar="WORD",
    help="A capability of its workers that tasks can require; repeatable, or comma-separated.",
)
@click.option("--no-capabilities", is_flag=True, help="Remove its capabilities.")
async def register(
    session: "Session",
    agent_id: str,
    max_tasks: int,
    kind: str | None,
    capabilities: tuple[str, ...],
    no_capabilities: bool,
) -> None:
    """Register an agent, or change a registered one; omitted fields stay unchanged. Running tasks continue.

    Workers of the agent get changed capabilities with their next heartbeat.
    """
    if capabilities and no_capabilities:
        raise click.UsageError("Give either --capability or --no-capabilities.")
    words = [word.strip() for each in capabilities for word in each.split(",") if word.strip()]
    chosen = words if words or no_capabilities else None
    async with session.api(must_exist=False) as api:
        _print_agent(session, await api.register_agent(agent_id, max_tasks=max_tasks, type=kind, capabilities=chosen))


@agents.command("drain")
@click.argument("agent_id", metavar="ID")
async def drain(session: "Session", agent_id: str) -> None:
    """Stop an agent from starting new tasks in any of its workers; running tasks continue."""
    async with session.api() as api:
        _print_agent(session, await api.drain_agent(agent_id))


@agents.command("activate")
@click.argument("agent_id", metavar="ID")
async def activate(session: "Session", agent_id: str) -> None:
    """Let an agent start tasks again."""
    async with session.api() as api:
        _print_agent(session, await api.activate_agent(agent_id))


@agents.command("offline")
@click.argument("agent_id", metavar="ID")
async def offline(session: "Session", agent_id: str) -> None:
    """Mark an agent as offline: it starts no tasks, and no heartbeat is expected."""
    async with session.api() as api:
        _print_agent(session, await api.mark_agent_offline(agent_id))


@agents.command("remove")
@click.argument("agent_id", metavar="ID")
async def remove(session: "Session", agent_id: str) -> None:
    """Remove an agent. Workers that still run under its name register it again."""
    async with session.api() as api:
        await api.remove_agent(agent_id)
    if session.out.as_json:
        session.out.document({"removed": agent_id})
    else:
        session.out.line(f"{agent_id}: removed")


def _print_agent(session: "Session", agent: Agent) -> None:
    if session.out.as_json:
        session.out.document(agent)
    else:
        kind = f" ({agent.type})" if agent.type else ""
        can = f", can {', '.join(agent.capabilities)}" if agent.capabilities else ""
        session.out.line(f"{agent.id}{kind}: {agent.status}, at most {agent.max_tasks} tasks at once{can}")


# `ade subagents`.


HEAD = ("id", "type", "status", "tools", "tokens", "took", "begun", "model", "description")
_SPARE = ("model", "begun", "tools")
_STYLES_SUBAGENTS = {
    SubagentStatus.PENDING: "yellow",
    SubagentStatus.RUNNING: "bold blue",
    SubagentStatus.COMPLETED: "green",
    SubagentStatus.ERROR: "bold red",
}


@command("subagents", reads=True)
@click.argument("task_id", metavar="[ID]", required=False)
@click.option("--parent", metavar="ID", help="Only those that this task has started.")
@click.option("--status", type=click.Choice([str(status) for status in SubagentStatus]), help="Only those.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most this many.")
async def subagents(
    session: "Session", task_id: str | None, parent: str | None, status: str | None, limit: int
) -> None:
    """List running and finished agents, newest first; with an ID, show everything about one."""
    if task_id is not None:
        await _show_subagent(session, task_id)
        return
    async with session.api() as api:
        parent_id = None if parent is None else await find_id(api, parent)
        page = await first_page(api.list_subagents, limit=limit, parent=parent_id, status=status)
    if session.out.as_json:
        session.out.document(page)
        return
    now = now_ms()
    session.out.table(HEAD, [_subagent_row(each, now) for each in page.items], _SPARE)
    if not page.items:
        session.out.note("No agent matches. `ade run --agent TYPE PROMPT` starts one.")


def _subagent_row(run: Subagent, now: int) -> Row:
    return (
        run.id,
        run.type,
        Cell(str(run.status), _STYLES_SUBAGENTS[run.status]),
        str(run.tool_calls),
        "" if run.tokens is None else f"{run.tokens:,}",
        "" if run.duration_ms is None else short_span(run.duration_ms),
        "" if run.started_at is None else distance(run.started_at, now=now),
        run.model or "",
        run.description.partition("\n")[0],
    )


async def _show_subagent(session: "Session", task_id: str) -> None:
    async with session.api() as api:
        run = await api.get_subagent(await find_id(api, task_id))
    now = now_ms()
    if session.out.as_json:
        session.out.document(run)
        return
    session.out.facts(
        [
            ("id", run.id),
            ("type", run.type),
            ("description", run.description),
            ("status", Cell(str(run.status), _STYLES_SUBAGENTS[run.status])),
            ("parent", run.parent_id or ""),
            ("model", run.model or ""),
            ("url", run.url or ""),
            ("session", run.session_id or ""),
            ("agent", run.agent_id or ""),
            ("conversation", run.conversation_id or ""),
            ("begun", local_with_distance(run.started_at, now=now)),
            ("took", "" if run.duration_ms is None else short_span(run.duration_ms)),
            ("attempt", str(run.attempt)),
            ("tool calls", str(run.tool_calls)),
            ("tokens", "" if run.tokens is None else f"{run.tokens:,}"),
            ("cost", "" if run.cost_usd is None else f"${run.cost_usd:.4g}"),
            ("turns", "" if run.turns is None else str(run.turns)),
            ("transcript", run.output_file or ""),
            ("error", run.error or ""),
        ]
    )
    for call in run.recent_tool_calls:
        session.out.line(f"  [tool] {call.name} {call.arguments}".rstrip())
