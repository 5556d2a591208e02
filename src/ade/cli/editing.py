"""New arguments for a task that is there: given or changed in an editor, and checked like those of a new one."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ade.cli.arguments import parse_pairs
from ade.cli.naming import own_app, schema_of
from ade.cli.output import pretty
from ade.cli.session import Session
from ade.core.errors import InvalidArguments
from ade.core.records import Task

if TYPE_CHECKING:
    from ade.client.client import Client


async def edited_arguments(
    session: Session, api: "Client", task_id: str, arguments: dict[str, Any] | None, *, edit: bool
) -> dict[str, Any] | None:
    """The arguments to run it with, or None to leave them as they are."""
    if arguments is None and not edit:
        return None
    task = await api.get_task(task_id, whole=edit)
    chosen = _edited(pretty(task.args if arguments is None else arguments)) if edit else arguments
    return None if chosen is None else checked_arguments(session, task, chosen)


async def changed_arguments(
    session: Session, api: "Client", task: Task, pairs: tuple[str, ...], arguments: dict[str, Any] | None
) -> dict[str, Any]:
    """All arguments anew, or those of the task; in either case with the pairs in place of what they name."""
    before = msgspec.json.decode(task.args) if arguments is None else arguments
    chosen = {**before, **parse_pairs(pairs, await schema_of(session, api, task.name))}
    return checked_arguments(session, task, chosen)


def checked_arguments(session: Session, task: Task, arguments: dict[str, Any]) -> dict[str, Any]:
    """As the app that was named wants them; without one they are checked where they go. Raises InvalidArguments."""
    app = own_app(session)
    signature = None if app is None else app.signature_of(task.name)
    if signature is None:
        return arguments
    encoded: dict[str, Any] = msgspec.json.decode(signature.encode(arguments))
    return encoded


def _edited(text: str) -> dict[str, Any] | None:
    """What somebody made of the text in their editor; None when nothing was changed."""
    changed = click.edit(text, extension=".json")
    if changed is None or changed.strip() == text.strip():
        return None
    try:
        decoded = msgspec.json.decode(changed)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidArguments(f"what you wrote is no JSON ({error}); nothing was changed") from None
    if not isinstance(decoded, dict):
        raise InvalidArguments("arguments are a JSON object of named values; nothing was changed")
    return decoded
