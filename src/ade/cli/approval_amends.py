"""`ade approvals amend` and `snooze`: a reviewer mends a task himself, or answers later."""

from typing import Any

import click

from ade.cli.approval_answers import asked_gate, tell, whole_digest
from ade.cli.editing import changed_arguments
from ade.cli.identity import as_option
from ade.cli.ids import find_id
from ade.cli.parsing import DURATION, JSON_OBJECT
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import local


@command("amend")
@click.argument("task_id", metavar="ID")
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="All arguments anew, as one JSON object.")
@click.option("--description", help="Another sentence for people.")
@click.option("--digest", required=True, help="Of what you have looked at.")
@click.option("--reason", default="", help="Why; kept on record.")
@as_option
@pass_session
def amend(
    session: Session,
    /,
    task_id: str,
    pairs: tuple[str, ...],
    arguments: dict[str, Any] | None,
    description: str | None,
    digest: str,
    reason: str,
) -> None:
    """Change a task that waits for you, and put it before people again. You have a hand in it then: others answer."""
    if not pairs and arguments is None and description is None:
        raise click.UsageError("Say what to change: KEY=VALUE, --args or --description.")
    session.run(_amend(session, task_id, pairs, arguments, description, digest, reason))


async def _amend(
    session: Session,
    text: str,
    pairs: tuple[str, ...],
    arguments: dict[str, Any] | None,
    description: str | None,
    digest: str,
    reason: str,
) -> None:
    async with session.api() as api:
        task, gate = await asked_gate(api, text, whole=bool(pairs))
        seen = whole_digest(gate, digest)
        args = None
        if pairs or arguments is not None:
            args = await changed_arguments(session, api, task, pairs, arguments)
        after = await api.amend_approval(task.id, digest=seen, args=args, description=description, reason=reason)
    tell(session, after)


@command("snooze")
@click.argument("task_id", metavar="ID")
@click.option("--for", "span", type=DURATION, default=3_600.0, show_default="1h", help="How long; seven days at most.")
@as_option
@pass_session
def snooze(session: Session, task_id: str, span: float) -> None:
    """Leave a task out of your list for a while; you can answer it all the same."""
    session.run(_snooze(session, task_id, span))


async def _snooze(session: Session, text: str, span: float) -> None:
    async with session.api() as api:
        put_off = await api.snooze_approval(await find_id(api, text), seconds=span)
    if session.out.as_json:
        session.out.document({"task_id": put_off.task_id, "account": put_off.account, "until": put_off.until})
    else:
        session.out.line(f"{put_off.task_id}  out of the list of {put_off.account} until {local(put_off.until)}")
