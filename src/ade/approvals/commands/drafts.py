"""The commands `ade draft` and `ade submit`: write, edit, and submit a task that needs approval."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from ade.cli.command import AdeGroup, command
from ade.cli.identity import as_option
from ade.cli.ids import find_id
from ade.cli.parameters import DURATION, JSON_OBJECT, PRIORITY
from ade.errors import IllegalTransition, WaitTimeout
from ade.tasks.commands.lifecycle import changes_of
from ade.tasks.commands.options import (
    changed_arguments,
    check_name,
    chosen_options,
    draft_options,
    make_task,
    parse_pairs,
    said_options,
    schema_of,
)
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


class DraftGroup(AdeGroup):
    """`ade draft NAME` means `ade draft new NAME`, even with options before the name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self.commands["new"]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "new", self.commands["new"], args


@click.group("draft", cls=DraftGroup, context_settings={"ignore_unknown_options": True})
def draft() -> None:
    """Create a task that must be approved before it runs. `ade draft NAME KEY=VALUE...` is `ade draft new`."""


@draft.command("new")
@click.argument("name")
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@draft_options
async def new(
    session: "Session",
    /,
    name: str,
    pairs: tuple[str, ...],
    arguments: dict[str, Any] | None,
    allow_unknown: bool,
    **given: Any,
) -> None:
    """Store the task NAME with arguments as a draft, and print its id.

    \b
      ade draft deploy service=web --resource service:web --start by_hand

    It runs only after it is submitted and approved; until it is submitted, it can be edited.
    """
    chosen = said_options(given)
    if not allow_unknown:
        await check_name(session, name)
    async with session.api_for_new() as (app, api):
        values = {**(arguments or {}), **parse_pairs(pairs, await schema_of(session, api, name))}
        options = await chosen_options(api, chosen)
        task = await make_task(session, app, api, name, values, options, draft=True, allow_unknown=allow_unknown)
    if session.out.as_json:
        session.out.document(task)
    else:
        session.out.line(task.id)
        session.out.note(f"`ade submit {task.id}` submits it for approval.")


@draft.command("edit")
@click.argument("task_id", metavar="ID")
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="All arguments, as one JSON object.")
@click.option("--description", help="A new description.")
@click.option("--priority", type=PRIORITY, help="A new priority: urgent, high, normal, low, or 0 (first) to 9 (last).")
@as_option
async def edit(
    session: "Session", /, task_id: str, pairs: tuple[str, ...], arguments: dict[str, Any] | None, **given: Any
) -> None:
    """Change a draft. Omitted arguments stay unchanged; earlier votes on it no longer count.

    An account that edits a task cannot approve it.
    """
    fields = {name: value for name, value in given.items() if value is not None}
    if not pairs and arguments is None and not fields:
        raise click.UsageError("Say what to change: KEY=VALUE, --args, --description or --priority.")
    async with session.api() as api:
        task = await api.get_task(await find_id(api, task_id), whole=True)
        if task.status is not Status.DRAFT:
            raise IllegalTransition(f"task {task.id} is {task.status}: only a draft can be edited")
        if pairs or arguments is not None:
            fields["args"] = await changed_arguments(session, api, task, pairs, arguments)
        edited = await api.edit_task(task.id, if_match=task.version, **fields)
    if session.out.as_json:
        session.out.document(edited)
    else:
        session.out.line(f"{edited.id}  changed: {', '.join(sorted(fields))}")


# `ade submit`.


@command("submit")
@click.argument("task_id", metavar="ID")
@click.option("--wait", is_flag=True, help="Wait until it is previewed and assessed.")
@click.option("--timeout", type=DURATION, help="Maximum time to wait; forever by default.")
@as_option
async def submit(session: "Session", task_id: str, wait: bool, timeout: float | None) -> None:
    """Submit a draft for approval: it is frozen, previewed by a worker if possible, and its risk is scored."""
    async with session.api() as api:
        task = await api.submit_task(await find_id(api, task_id))
        if wait or timeout is not None:
            task = await _assessed(api, task, timeout)
    if session.out.as_json:
        session.out.document(task)
        return
    session.out.line(f"{task.id}  {task.status}")
    errors = task.review.errors if task.review is not None else ()
    for error in errors if task.status is Status.DRAFT else ():
        session.out.note(f"It was returned to its author: {error}")


async def _assessed(api: "Client", task: Task, timeout: float | None) -> Task:
    """Return the task once it is no longer submitted. Raises WaitTimeout."""
    try:
        async with asyncio.timeout(timeout), aclosing(changes_of(api, task.id)) as changes:
            async for changed in changes:
                if changed.status is not Status.SUBMITTED:
                    return changed
    except TimeoutError:
        raise WaitTimeout(f"it was not assessed in {timeout:g} s; `ade explain {task.id}` shows why") from None
    raise AssertionError("events do not end by themselves")
