"""`ade enqueue`: enqueue one task, or all tasks of a file."""

from typing import TYPE_CHECKING, Any

import click

from ade.cli.command import command
from ade.tasks.commands.options import (
    check_name,
    chosen_options,
    make_task,
    parse_pairs,
    said_options,
    schema_of,
    task_options,
)

if TYPE_CHECKING:  # keeps `--help` fast
    from ade.cli.session import Session
    from ade.tasks.options import TaskOptions


@command("enqueue")
@click.argument("name", required=False)
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@task_options
@click.option("--file", "file", type=click.File("rb"), help="Enqueue a task for each line of JSON; - is stdin.")
@click.option("--wait", is_flag=True, help="Wait for the result and print it.")
async def enqueue(
    session: "Session",
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
    with `name`, `args` and any of draft, queue, priority, delay, run_at, deadline, key, after, after_failure, tags,
    description, max_attempts, timeout, backoff, result_ttl, concurrency_key, locks, needs, parent, team, ticket,
    approval, resources, rollback, start, not_before, not_after, trace, allow_unknown. A line may be called `ref`,
    and others may name it in `after`; such a file is stored all or none.
    """
    options = said_options(given)
    if (name is None) == (file is None):
        raise click.UsageError("Give the NAME of a task, or a --file of tasks.")
    if file is not None:
        if pairs or arguments is not None or options:
            raise click.UsageError("With --file, everything else about the tasks is in the file.")
        from ade.tasks.commands.enqueue_bulk import enqueue_file

        return await enqueue_file(session, file, allow_unknown=allow_unknown, wait=wait)
    return await _enqueue(session, name or "", pairs, arguments, options, allow_unknown, wait)


async def _enqueue(
    session: "Session",
    name: str,
    pairs: tuple[str, ...],
    arguments: dict[str, Any] | None,
    options: "TaskOptions",
    allow_unknown: bool,
    wait: bool,
) -> int:
    if not allow_unknown:
        await check_name(session, name)
    async with session.api_for_new() as (app, api):
        given = {**(arguments or {}), **parse_pairs(pairs, await schema_of(session, api, name))}
        options = await chosen_options(api, options)
        task = await make_task(session, app, api, name, given, options, draft=False, allow_unknown=allow_unknown)
        if session.out.as_json:
            session.out.record(task)
        else:
            session.out.line(task.id)
        if not wait:
            return 0
        from ade.tasks.commands.wait import wait_for

        return await wait_for(session, api, [task.id], None)
