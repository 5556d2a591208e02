"""`ade cancel`: stop tasks, by id or by filter."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import click

from ade.cli.confirming import confirm
from ade.cli.filters import Filter, chosen, filter_options, is_empty
from ade.cli.ids import find_ids
from ade.cli.progress import progress
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import now_ms
from ade.cli.views import task_view
from ade.core.records import Task
from ade.core.web.forms.tasks import MOST_TOGETHER, TaskFilter

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.queue.bulk import Reach


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
    async with session.api() as api:
        for task_id in await find_ids(api, texts):
            _tell(session, await api.cancel_task(task_id, reason=reason))


async def _cancel_by_filter(session: Session, given: Filter, reason: str | None, yes: bool) -> None:
    wanted = chosen(given, now=now_ms())
    async with session.api() as api:
        reach = await api.preview_bulk_action(action="cancel", filter=wanted)
        if not reach.count:
            session.out.note("No unfinished task fits.")
        else:
            or_more = " or more" * reach.is_more
            tasks = f"{reach.count}{or_more} task{'s' * (reach.count != 1)}"
            confirm(session, f"{tasks} would be cancelled.", yes=yes)
        cancelled, matched = await _cancel_all(session, api, wanted, reach, reason)
    if session.out.as_json:
        session.out.document({"cancelled": cancelled, "matched": matched})
    elif matched:
        session.out.line(f"Cancelled {len(cancelled)} of {matched} tasks.")


async def _cancel_all(
    session: Session, api: "Client", wanted: TaskFilter, reach: "Reach", reason: str | None
) -> tuple[list[str], int]:
    """Those that are still unfinished when their turn comes, oldest first, and no more than were told of; and how many
    there were."""
    cancelled: list[str] = []
    tried, is_more = 0, reach.count > 0
    with progress(session, "Cancelling", reach.count) as bar:
        while is_more and (reach.is_more or tried < reach.count):
            limit = MOST_TOGETHER if reach.is_more else min(reach.count - tried, MOST_TOGETHER)
            done = await api.run_bulk_action(action="cancel", filter=wanted, reason=reason, limit=limit)
            cancelled += done.changed
            tried += len(done.changed) + len(done.moved_on)
            is_more = done.is_more and bool(done.changed or done.moved_on)
            bar.advance(len(done.changed))
    return cancelled, max(tried, reach.count)


def _tell(session: Session, task: Task) -> None:
    if session.out.as_json:
        session.out.record(task_view(task))
    else:
        session.out.line(f"{task.id}  {task.status}  {task.name}")
