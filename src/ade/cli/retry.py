"""`ade retry`: run failed tasks again."""

import click

from ade.cli.editing import edited_arguments
from ade.cli.ids import find_ids
from ade.cli.parsing import JSON_OBJECT
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.views import task_view


@command("retry")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="Run it with these arguments instead.")
@click.option("--edit", is_flag=True, help="Change the arguments in your editor first.")
@pass_session
def retry(session: Session, task_ids: tuple[str, ...], arguments: dict[str, object] | None, edit: bool) -> None:
    """Run failed tasks again: each gets a new generation with fresh attempts. `ade dlq replay` does it in bulk."""
    session.run(replay_by_id(session, task_ids, arguments, edit))


async def replay_by_id(
    session: Session, texts: tuple[str, ...], arguments: dict[str, object] | None, edit: bool
) -> None:
    if (arguments is not None or edit) and len(texts) != 1:
        raise click.UsageError("New arguments are for one task: name one id with --args or --edit.")
    async with session.api() as api:
        for task_id in await find_ids(api, texts):
            args = await edited_arguments(session, api, task_id, arguments, edit=edit)
            task = await api.retry_task(task_id, args=args)
            if session.out.as_json:
                session.out.record(task_view(task))
            else:
                session.out.line(f"{task.id}  {task.status}  {task.name}  generation {task.generation}")
