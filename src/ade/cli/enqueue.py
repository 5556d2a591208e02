"""`ade enqueue`: one task from the command line, or all tasks of a file."""

from typing import TYPE_CHECKING, Any

import click

from ade.cli.arguments import parse_pairs
from ade.cli.identity import acting
from ade.cli.naming import schema_of, unknown_name
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.task_options import chosen_options, said_options, task_options
from ade.cli.views import task_view
from ade.core.errors import UnknownName
from ade.ports import Stores
from ade.queue.tasks import get

if TYPE_CHECKING:  # `--help` comes without them
    from ade.app.ade import Ade
    from ade.app.options import Options


@command("enqueue")
@click.argument("name", required=False)
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@task_options
@click.option("--file", "file", type=click.File("rb"), help="Enqueue a task for each line of JSON; - is stdin.")
@click.option("--wait", is_flag=True, help="Wait until done and print the result.")
@pass_session
def enqueue(
    session: Session,
    /,
    name: str | None,
    pairs: tuple[str, ...],
    arguments: dict[str, Any] | None,
    allow_unknown: bool,
    file: Any,
    wait: bool,
    **given: Any,
) -> int:
    """Enqueue the task NAME with arguments, and print its id once it is stored.

    \b
      ade enqueue resize url=https://example.org/cat.png width=400
      ade enqueue resize --args '{"url": "https://example.org/cat.png"}' --priority 2 --wait
      ade enqueue --file tasks.jsonl

    A value is read as JSON unless the task wants text there; KEY:=JSON is always JSON. Each line of a file is an object
    with `name`, `args` and any of queue, priority, delay, run_at, deadline, key, after, after_failure, tags,
    description, max_attempts, timeout, result_ttl, concurrency_key, locks, needs, approval, resources, rollback, start.
    A line may be called `ref`, and others may name it in `after`; such a file is stored all or none.
    """
    options = said_options(given)
    if (name is None) == (file is None):
        raise click.UsageError("Give the NAME of a task, or a --file of tasks.")
    if file is not None:
        if pairs or arguments is not None or options:
            raise click.UsageError("With --file everything else about the tasks stands in the file.")
        from ade.cli.bulk import enqueue_file

        return session.run(enqueue_file(session, file, allow_unknown=allow_unknown, wait=wait))
    return session.run(_enqueue(session, name or "", pairs, arguments, options, allow_unknown, wait))


async def _enqueue(
    session: Session,
    name: str,
    pairs: tuple[str, ...],
    arguments: dict[str, Any] | None,
    options: "Options",
    allow_unknown: bool,
    wait: bool,
) -> int:
    author = acting(session)
    if not allow_unknown and not session.has_store() and session.any_app.signature_of(name) is None:
        raise await unknown_name(session.any_app, None, name)  # a mistake makes no store
    async with session.open_app() as app:
        stores = (await app.open()).stores
        chosen = {**(arguments or {}), **parse_pairs(pairs, await schema_of(app, stores, name))}
        options = await chosen_options(stores, options, author)
        task_id = await _stored(app, stores, name, chosen, options, allow_unknown)
        await _tell(session, stores, task_id)
        if not wait:
            return 0
        from ade.cli.finishing import wait_for

        return await wait_for(session, stores, [task_id], None)


async def _stored(
    app: "Ade", stores: Stores, name: str, arguments: dict[str, Any], options: "Options", allow_unknown: bool
) -> str:
    try:
        return (await app.enqueue(name, arguments, allow_unknown=allow_unknown, **options)).id
    except UnknownName:
        raise await unknown_name(app, stores, name) from None


async def _tell(session: Session, stores: Stores, task_id: str) -> None:
    if session.out.as_json:
        session.out.record(task_view(await get(stores, task_id)))
    else:
        session.out.line(task_id)
