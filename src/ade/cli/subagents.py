"""`ade subagents`: which agents are at work, for whom, and what became of them."""

from typing import Any

import click

from ade.cli.ids import find_id
from ade.cli.output import Cell, Row
from ade.cli.pages import first_of
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import distance, local_with_distance, now_ms, short_span
from ade.cli.views import view
from ade.insight.subagents import Subagent, SubagentStatus

HEAD = ("id", "type", "status", "tools", "tokens", "took", "begun", "model", "description")
_SPARE = ("model", "begun", "tools")
_STYLES = {
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
    session.look(_show(session, task_id) if task_id is not None else _list(session, parent, status, limit))


async def _list(session: Session, parent: str | None, status: str | None, limit: int) -> None:
    async with session.api() as api:
        parent_id = None if parent is None else await find_id(api, parent)
        found = await first_of(api.list_subagents, limit=limit, parent=parent_id, status=status)
    now = now_ms()
    if session.out.as_json:
        session.out.document({"subagents": [_document(each) for each in found]})
        return
    session.out.table(HEAD, [_row(each, now) for each in found], _SPARE)
    if not found:
        session.out.note("No agent fits. `ade run --agent TYPE PROMPT` lets one work.")


def _row(seen: Subagent, now: int) -> Row:
    return (
        seen.id,
        seen.type,
        Cell(str(seen.status), _STYLES[seen.status]),
        str(seen.tool_calls),
        "" if seen.tokens is None else f"{seen.tokens:,}",
        "" if seen.duration_ms is None else short_span(seen.duration_ms),
        "" if seen.started_at is None else distance(seen.started_at, now=now),
        seen.model or "",
        seen.description.partition("\n")[0],
    )


async def _show(session: Session, task_id: str) -> None:
    async with session.api() as api:
        seen = await api.get_subagent(await find_id(api, task_id))
    now = now_ms()
    if session.out.as_json:
        session.out.document(_document(seen))
        return
    session.out.facts(
        [
            ("id", seen.id),
            ("type", seen.type),
            ("description", seen.description),
            ("status", Cell(str(seen.status), _STYLES[seen.status])),
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


def _document(seen: Subagent) -> dict[str, Any]:
    return view(seen)
