"""`ade agents`: how much each agent may do at once, and which of them begin nothing new."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ade.cli.output import Cell, Row
from ade.cli.pages import all_of
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import distance, now_ms, short_span
from ade.cli.views import view as fields_of
from ade.core.agents import Agent, AgentStatus
from ade.insight.agents import AgentView
from ade.insight.reasons import moment

if TYPE_CHECKING:
    from ade.calls.call import Call
    from ade.client.client import Client

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
