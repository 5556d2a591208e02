"""An agent at work: what it does on the way, and its report at the end."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from ade.cli.changes import changes_of
from ade.cli.exit_codes import ExitCode
from ade.cli.finishing import raise_unless_completed, result_of
from ade.cli.logs import LinePrinter, follow_output
from ade.cli.session import Session
from ade.cli.times import short_span
from ade.cli.views import task_view
from ade.core.agent_runs.results import AgentResult, result_in
from ade.core.lifecycle import Status
from ade.core.records import Task

if TYPE_CHECKING:
    from ade.client.client import Client

_WAITS_FOR_PEOPLE = frozenset({Status.SUBMITTED, Status.REVIEWING, Status.APPROVED})


async def watch_run(session: Session, api: "Client", task_id: str) -> int:
    """Until the end: the report, or the error that tells of it."""
    shown: list[str] = []

    def write(line: str) -> None:
        shown.append(line)
        session.out.note(line)

    telling = asyncio.create_task(_tell_of_people(session, api, task_id))
    try:
        await follow_output(api, task_id, LinePrinter(session.out, write=write))
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    task = await api.get_task(task_id)
    raw = await result_of(api, task)
    if session.out.as_json:
        session.out.record({**task_view(task), **({} if raw is None else {"result": raw})})
        return ExitCode.OK if task.status is Status.COMPLETED else ExitCode.PROBLEM
    raise_unless_completed(task)
    result = result_in(raw)
    if result is not None:
        if not _is_seen(session, result.report, shown):
            session.out.line(result.report)
        session.out.note(_summary(task, result))
    return ExitCode.OK


async def _tell_of_people(session: Session, api: "Client", task_id: str) -> None:
    """Say when the task begins to wait for people: nothing goes on until they have answered."""
    is_told = False
    async with aclosing(changes_of(api, task_id)) as changes:
        async for task in changes:
            waits = task.status in _WAITS_FOR_PEOPLE
            if waits and not is_told:
                session.out.note(f"It waits for people: `ade approvals show {task.id}` tells for whom.")
            is_told = waits


def _is_seen(session: Session, report: str, shown: list[str]) -> bool:
    """Whether the reader has just seen these very lines, because stderr goes to the same terminal."""
    lines = report.splitlines()
    is_one_terminal = session.out.is_terminal and session.out.shows_progress
    return is_one_terminal and bool(lines) and shown[-len(lines) :] == lines


def _summary(task: Task, result: AgentResult) -> str:
    facts = [f"done in {short_span(result.duration_ms)}"]
    facts += [f"{result.tokens:,} tokens"] if result.tokens is not None else []
    facts += [f"${result.cost_usd:.4g}"] if result.cost_usd is not None else []
    goes_on = result.session_id or result.agent_id or result.conversation_id
    hint = f". Go on with `ade run --agent {result.subagent_type} --resume {task.id} ...`" if goes_on else ""
    return ", ".join(facts) + hint
