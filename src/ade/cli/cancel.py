"""`ade cancel`: stop tasks, by id or by filter."""

from collections.abc import Sequence
from typing import Unpack

import click
from msgspec import structs

from ade.cli.confirming import confirm
from ade.cli.filters import Filter, all_found, filter_options, is_empty, query_of
from ade.cli.ids import find_ids
from ade.cli.progress import progress
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.views import task_view
from ade.core.lifecycle import RULES, Verb
from ade.core.records import Task
from ade.ports import Stores
from ade.queue import tasks as use_cases
from ade.queue.cancelling import cancel_many


@command("cancel")
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@filter_options
@click.option("--reason", help="Kept with the tasks.")
@click.option("--yes", is_flag=True, help="Do not ask before cancelling all that fit a filter.")
@pass_session
def cancel(session: Session, task_ids: tuple[str, ...], reason: str | None, yes: bool, **given: Unpack[Filter]) -> None:
    """Stop tasks at once, whatever they are doing, and their unfinished children. A late result is refused.

    Give ids, or a filter; a filter shows how many tasks fit and asks first.
    """
    if bool(task_ids) != is_empty(given):
        raise click.UsageError("Name tasks by id, or give a filter such as --queue or --name; not both.")
    if task_ids:
        session.run(_cancel_by_id(session, task_ids, reason))
    else:
        session.run(_cancel_by_filter(session, given, reason, yes))


async def _cancel_by_id(session: Session, texts: Sequence[str], reason: str | None) -> None:
    async with session.stores() as stores:
        for task_id in await find_ids(stores, texts):
            _tell(session, await use_cases.cancel(stores, task_id, reason, actor=session.actor))


async def _cancel_by_filter(session: Session, given: Filter, reason: str | None, yes: bool) -> None:
    async with session.stores() as stores:
        query = query_of(given, now=stores.clock.now())
        open_statuses = RULES[Verb.CANCEL].sources
        wanted = structs.replace(query, statuses=(query.statuses & open_statuses) if query.statuses else open_statuses)
        ids = [task.id async for task in all_found(stores, wanted)] if wanted.statuses else []
        if not ids:
            session.out.note("No unfinished task fits.")
        else:
            confirm(session, f"{len(ids)} task{'s' * (len(ids) != 1)} would be cancelled.", yes=yes)
        cancelled = await _cancel_all(session, stores, ids, reason)
    if session.out.as_json:
        session.out.document({"cancelled": cancelled, "matched": len(ids)})
    elif ids:
        session.out.line(f"Cancelled {len(cancelled)} of {len(ids)} tasks.")


async def _cancel_all(session: Session, stores: Stores, ids: Sequence[str], reason: str | None) -> list[str]:
    """Those that are still unfinished when their turn comes."""
    cancelled: list[str] = []
    with progress(session, "Cancelling", len(ids)) as bar:
        async for batch in cancel_many(stores, ids, reason, actor=session.actor):
            cancelled += batch
            bar.advance(len(batch))
    return cancelled


def _tell(session: Session, task: Task) -> None:
    if session.out.as_json:
        session.out.record(task_view(task))
    else:
        session.out.line(f"{task.id}  {task.status}  {task.name}")
