"""`ade tasks`: list them, newest first."""

from typing import Unpack

import click
from msgspec import structs

from ade.cli.filters import Filter, filter_options, query_of
from ade.cli.listing import SPARE, TASK_HEAD, task_rows
from ade.cli.parsing import PLACE
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.views import task_view
from ade.ports import TaskPage, TaskQuery


@command("tasks")
@filter_options
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most so many.")
@click.option("--cursor", type=PLACE, help="Go on behind this place, as told by the page before.")
@click.option("--oldest-first", is_flag=True, help="Turn the order round.")
@pass_session
def tasks(session: Session, limit: int, cursor: int | None, oldest_first: bool, **given: Unpack[Filter]) -> None:
    """List tasks, newest first. All conditions must hold."""
    session.look(_list(session, given, limit=limit, cursor=cursor, oldest_first=oldest_first))


async def _list(session: Session, given: Filter, *, limit: int, cursor: int | None, oldest_first: bool) -> None:
    async with session.stores() as stores:
        now = stores.clock.now()
        query = structs.replace(query_of(given, now=now), limit=limit, after=cursor, oldest_first=oldest_first)
        page = await stores.tasks.find(query)
    _show(session, page, query, now)


def _show(session: Session, page: TaskPage, query: TaskQuery, now: int) -> None:
    out = session.out
    if out.as_json:
        out.document({"tasks": [task_view(task) for task in page.tasks], "next": page.next})
        return
    out.table(TASK_HEAD, task_rows(page.tasks, now=now), SPARE)
    if not page.tasks:
        empty = structs.replace(TaskQuery(), limit=query.limit, oldest_first=query.oldest_first)
        out.note("No tasks yet. `ade enqueue NAME` makes one." if query == empty else "No task fits.")
    elif page.next is not None:
        out.note(f"More follow: --cursor {page.next}")
