"""Going on in the session of an earlier run."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ade.cli.finishing import result_of
from ade.cli.ids import find_id
from ade.core.agent_runs.names import is_run, task_name, type_of
from ade.core.agent_runs.results import progress_in, result_in
from ade.core.errors import UnknownTask
from ade.core.records import Task

if TYPE_CHECKING:
    from ade.client.client import Client

_KEPT = ("session_id", "agent_id", "conversation_id", "session_tokens")


async def resumed(api: "Client", resume: str, subagent_type: str) -> dict[str, Any]:
    """What to say about a run that goes on: with a task of this id if there is one, otherwise in the session itself."""
    try:
        task = await api.get_task(await find_id(api, resume))
    except UnknownTask:
        return {"session_id": resume}
    if task.name != task_name(subagent_type):
        whose = f"an agent of type {type_of(task.name)}" if is_run(task.name) else f"{task.name}, which is no agent"
        raise click.UsageError(f"Task {task.id} was done by {whose}: {subagent_type} cannot go on with it.")
    known = result_in(await result_of(api, task)) or progress_in(task.progress)
    found = {name: value for name in _KEPT if known is not None and (value := getattr(known, name)) is not None}
    if not found.keys() - {"session_tokens"}:
        raise click.UsageError(f"Task {task.id} has left no session to go on in.")
    if not task.is_final:
        raise click.UsageError(f"Task {task.id} still works in that session: wait for it, or cancel it.")
    return found | await _place(api, task)


async def _place(api: "Client", task: Task) -> dict[str, str]:
    """Where it worked: agents find their sessions by the folder."""
    args = msgspec.json.decode((await api.get_task(task.id, whole=True)).args)
    if args.get("cwd") is not None:
        return {"cwd": args["cwd"]}
    return {"workspace": args.get("workspace") or task.id}
