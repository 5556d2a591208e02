"""`ade top`: the state of everything, live."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ade.cli.command import command, pass_session
from ade.cli.output import fitted, table_of
from ade.cli.parameters import DURATION, local
from ade.cli.session import Session
from ade.common.text import without_password
from ade.server.wire_cli import overview_view, task_view
from ade.tasks.commands.queues import QUEUE_HEAD, dead_letters, print_overview, queue_rows, rates, totals
from ade.tasks.commands.tasks import SPARE, TASK_HEAD, task_rows
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.overview import Overview
from ade.worker.commands.workers import WORKER_HEAD, worker_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ade.client.client import Client

_MOST_RUNNING = 15  # that are shown


@command("top")
@click.option("--interval", type=DURATION, default=1.0, show_default="1s", help="How often to look.")
@click.option("--once", is_flag=True, help="Look once and end.")
@pass_session
def top(session: Session, interval: float, once: bool) -> None:
    """Watch depths, throughput, workers and running tasks until Ctrl-C.

    To a pipe, and with --json, every look is written as it comes.
    """
    if interval < 0.1:
        raise click.UsageError("--interval must be at least 0.1 seconds.")
    session.run(_top(session, interval, once))


async def _top(session: Session, interval: float, once: bool) -> None:
    async with session.api() as api:
        if once or not session.out.is_terminal:
            await _print_looks(session, api, interval, once)
        else:
            await _draw_live(session, api, interval)


async def _look(api: "Client") -> tuple[Overview, Sequence[Task]]:
    return await api.get_stats(), (await api.list_tasks(status=[Status.RUNNING], limit=_MOST_RUNNING)).items


async def _print_looks(session: Session, api: "Client", interval: float, once: bool) -> None:
    while True:
        seen, running = await _look(api)
        if session.out.as_json:
            session.out.record({**overview_view(seen), "running": [task_view(task) for task in running]})
        else:
            session.out.line(local(seen.at))
            print_overview(session.out, seen)
            session.out.line()
        if once:
            return
        await asyncio.sleep(interval)


async def _draw_live(session: Session, api: "Client", interval: float) -> None:
    from rich.live import Live

    place = session.settings.store.url if session.server is None else session.server.url
    url = without_password(place)
    with Live(console=session.out.console, screen=True, auto_refresh=False) as live:
        while True:
            drawing = _drawing(*await _look(api), url=url, width=live.console.width)
            live.update(drawing, refresh=True)
            await asyncio.sleep(interval)


def _drawing(seen: Overview, running: Sequence[Task], *, url: str, width: int) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(f"ade  {url}  {local(seen.at)}", style="bold"),
        Text(f"tasks: {totals(seen)}   dead letters: {dead_letters(seen)}"),
        Text(f"last minute: {rates(seen)}"),
    ]
    for title, head, rows in (
        ("Queues", QUEUE_HEAD, queue_rows(seen.queues)),
        ("Workers", WORKER_HEAD, worker_rows(seen.workers, now=seen.at)),
        ("Running", TASK_HEAD, task_rows(running, now=seen.at)),
    ):
        parts += [Text(), table_of(*fitted(head, rows, width, SPARE), title=f"[bold]{title}")] if rows else []
    return Group(*parts, Text("\nCtrl-C ends", style="dim"))
