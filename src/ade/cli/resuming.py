"""Going on in the session of an earlier run."""

from typing import Any

import click
import msgspec

from ade.cli.ids import find_id
from ade.cli.session import Session
from ade.core.agent_runs.names import is_run, task_name, type_of
from ade.core.agent_runs.results import progress_in, result_in
from ade.core.errors import UnknownTask
from ade.core.ids import is_task_id
from ade.core.records import Task
from ade.ports import Stores
from ade.queue.tasks import get, result_of

_KEPT = ("session_id", "agent_id", "conversation_id", "session_tokens")


async def resumed(session: Session, stores: Stores, resume: str, subagent_type: str) -> dict[str, Any]:
    """What to say about a run that goes on: with a task of this id if there is one, otherwise in the session itself."""
    try:
        task = await get(stores, resume if is_task_id(resume) else await find_id(stores, resume))
    except UnknownTask:
        return {"session_id": resume}
    if task.name != task_name(subagent_type):
        whose = f"an agent of type {type_of(task.name)}" if is_run(task.name) else f"{task.name}, which is no agent"
        raise click.UsageError(f"Task {task.id} was done by {whose}: {subagent_type} cannot go on with it.")
    known = result_in(await result_of(stores, session.payloads(stores), task)) or progress_in(task.progress)
    found = {name: value for name in _KEPT if known is not None and (value := getattr(known, name)) is not None}
    if not found.keys() - {"session_tokens"}:
        raise click.UsageError(f"Task {task.id} has left no session to go on in.")
    if not task.is_final:
        raise click.UsageError(f"Task {task.id} still works in that session: wait for it, or cancel it.")
    return found | await _place(session, stores, task)


async def _place(session: Session, stores: Stores, task: Task) -> dict[str, str]:
    """Where it worked: agents find their sessions by the folder."""
    args = msgspec.json.decode(await session.payloads(stores).load(task.args))
    if args.get("cwd") is not None:
        return {"cwd": args["cwd"]}
    return {"workspace": args.get("workspace") or task.id}
