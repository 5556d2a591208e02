"""`ade tasks`: list them, newest first."""

from typing import Unpack

import click
from msgspec import structs

from ade.cli.filters import Filter, chosen, filter_options, is_empty
from ade.cli.listing import SPARE, TASK_HEAD, task_rows
from ade.cli.pages import first_page
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import now_ms
from ade.cli.views import task_view


@command("tasks")
@filter_options
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most so many.")
@click.option("--cursor", help="Go on behind this place, as told by the page before.")
@click.option("--oldest-first", is_flag=True, help="Turn the order round.")
@pass_session
def tasks(session: Session, limit: int, cursor: str | None, oldest_first: bool, **given: Unpack[Filter]) -> None:
    """List tasks, newest first. All conditions must hold."""
    session.look(_list(session, given, limit=limit, cursor=cursor, oldest_first=oldest_first))


async def _list(session: Session, given: Filter, *, limit: int, cursor: str | None, oldest_first: bool) -> None:
    now = now_ms()
    conditions = structs.asdict(chosen(given, now=now))
    order = "oldest" if oldest_first else "newest"
    async with session.api() as api:
        page = await first_page(api.list_tasks, limit=limit, cursor=cursor, order=order, **conditions)
    if session.out.as_json:
        session.out.document({"tasks": [task_view(task) for task in page.items], "next": page.next})
        return
    session.out.table(TASK_HEAD, task_rows(page.items, now=now), SPARE)
    if page.next is not None:
        session.out.note(f"More follow: --cursor {page.next}")
    elif not page.items:
        is_all = is_empty(given) and cursor is None
        session.out.note("No tasks yet. `ade enqueue NAME` makes one." if is_all else "No task fits.")
