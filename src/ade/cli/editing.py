"""New arguments for a task that failed: given or changed in an editor, and checked like those of a new one."""

from typing import Any

import click
import msgspec
from msgspec import Raw

from ade.cli.arguments import parse_pairs
from ade.cli.naming import schema_of
from ade.cli.output import pretty
from ade.cli.session import Session
from ade.core.errors import InvalidArguments
from ade.core.records import Task
from ade.ports import Stores
from ade.queue.names import arguments_by_name
from ade.queue.tasks import get


async def edited_arguments(
    session: Session, stores: Stores, task_id: str, arguments: dict[str, Any] | None, *, edit: bool
) -> Raw | None:
    """The checked arguments to run it with, or None to leave them as they are."""
    if arguments is None and not edit:
        return None
    task = await get(stores, task_id)
    chosen = arguments
    if edit:
        before = arguments if arguments is not None else await session.payloads(stores).load(task.args)
        chosen = _edited(pretty(before))
    if chosen is None:
        return None
    return await checked_arguments(session, stores, task, chosen)


async def changed_arguments(
    session: Session, stores: Stores, task: Task, pairs: tuple[str, ...], arguments: dict[str, Any] | None
) -> Raw:
    """All arguments anew, or those of the task; in either case with the pairs in place of what they name."""
    before = arguments
    if before is None:
        before = msgspec.json.decode(await session.payloads(stores).load(task.args))
    chosen = {**before, **parse_pairs(pairs, await schema_of(session.any_app, stores, task.name))}
    return await checked_arguments(session, stores, task, chosen)


async def checked_arguments(session: Session, stores: Stores, task: Task, arguments: dict[str, Any]) -> Raw:
    """Raises InvalidArguments when they do not fit what the app or some worker says about the name."""
    if session.app_spec is not None and (signature := session.app.signature_of(task.name)) is not None:
        return signature.encode(arguments)
    _, raw = await arguments_by_name(stores, task.name, arguments, allow_unknown=True)
    return raw


def _edited(text: str) -> dict[str, Any] | None:
    """What somebody made of the text in their editor; None when nothing was changed."""
    changed = click.edit(text, extension=".json")
    if changed is None or changed.strip() == text.strip():
        return None
    try:
        decoded = msgspec.json.decode(changed)
    except msgspec.DecodeError as error:
        raise InvalidArguments(f"what you wrote is no JSON ({error}); nothing was changed") from None
    if not isinstance(decoded, dict):
        raise InvalidArguments("arguments are a JSON object of named values; nothing was changed")
    return decoded
