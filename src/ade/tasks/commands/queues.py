"""`ade queues`, `ade stats`, and `ade top`: manage queues and show statistics."""

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ade.cli.command import command, group
from ade.cli.output import Cell, CommandOutput, Row, all_of
from ade.cli.parameters import DURATION, local
from ade.common.text import without_password
from ade.server.wire_format import members_of
from ade.tasks.commands.tasks import SPARE, TASK_HEAD, task_rows
from ade.tasks.lifecycle import Status
from ade.tasks.model import Queue, Task
from ade.tasks.overview import Overview, QueueView
from ade.tasks.reasons import short_span
from ade.worker.commands.workers import WORKER_HEAD, worker_rows

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


_MOST_DIGITS = re.compile("[1-9][0-9]{0,8}")


@group("queues", bare="list")
def queues() -> None:
    """List, pause, resume and limit queues. `ade queues` alone lists them."""


@queues.command("list", reads=True)
async def list_queues(session: "Session") -> None:
    """List all queues with their depth and how long the oldest ready task has been waiting."""
    async with session.api() as api:
        seen = await all_of(api, api.list_queues)
    if session.out.as_json:
        session.out.items(seen)
        return
    session.out.table(QUEUE_HEAD, queue_rows(seen))
    if not seen:
        session.out.note("No queue was used yet.")


QUEUE_HEAD = ("queue", "state", "pending", "running", "completed", "failed", "oldest ready", "limit")


def queue_rows(queues: Sequence[QueueView]) -> list[Row]:
    """Return table rows for QUEUE_HEAD."""

    def count(queue: QueueView, *statuses: Status) -> str:
        return str(sum(queue.by_status.get(status, 0) for status in statuses))

    return [
        (
            queue.name,
            Cell("paused", "bold yellow") if queue.paused else Cell("open", "green"),
            count(queue, Status.PENDING, Status.STALLED),
            count(queue, Status.RUNNING),
            count(queue, Status.COMPLETED),
            count(queue, Status.FAILED),
            "" if queue.oldest_ready_ms is None else short_span(queue.oldest_ready_ms),
            "" if queue.max_depth is None else str(queue.max_depth),
        )
        for queue in queues
    ]


def _new_option(function: click.decorators.FC) -> click.decorators.FC:
    return click.option("--new", is_flag=True, help="Allow a queue that does not exist yet.")(function)


@queues.command("pause")
@click.argument("name")
@_new_option
async def pause(session: "Session", name: str, new: bool) -> None:
    """Stop claiming tasks of the queue; running tasks continue, and new ones are accepted."""
    async with session.api(must_exist=not new) as api:
        _print_queue(session, await api.pause_queue(name, new=new))


@queues.command("resume")
@click.argument("name")
async def resume(session: "Session", name: str) -> None:
    """Claim tasks of the queue again."""
    async with session.api() as api:
        _print_queue(session, await api.resume_queue(name))


@queues.command("limit")
@click.argument("name")
@click.argument("depth", metavar="DEPTH|none")
@_new_option
async def limit(session: "Session", name: str, depth: str, new: bool) -> None:
    """Reject new tasks while the queue has DEPTH unfinished ones; `none` removes the limit."""
    if depth != "none" and not _MOST_DIGITS.fullmatch(depth):
        raise click.UsageError(f"{depth[:60]!r} is not a limit: give a whole number from 1 to 999,999,999, or none.")
    max_depth = None if depth == "none" else int(depth)
    async with session.api(must_exist=not new) as api:
        _print_queue(session, await api.limit_queue(name, max_depth=max_depth, new=new))


def _print_queue(session: "Session", queue: Queue) -> None:
    if session.out.as_json:
        session.out.document(queue)
    else:
        bound = "no limit" if queue.max_depth is None else f"at most {queue.max_depth} unfinished tasks"
        session.out.line(f"{queue.name}: {'paused' if queue.paused else 'open'}, {bound}")


# `ade stats`: statistics, once.


@command("stats", reads=True)
async def stats(session: "Session") -> None:
    """Show depths, ages, throughput and workers once."""
    async with session.api() as api:
        seen = await api.get_stats()
    if session.out.as_json:
        session.out.document(seen)
        return
    print_overview(session.out, seen)


def print_overview(out: CommandOutput, seen: Overview) -> None:
    """Print the statistics as facts and tables."""
    out.facts([("tasks", totals(seen)), ("last minute", rates(seen)), ("dead letters", dead_letters(seen))])
    for head, rows in ((QUEUE_HEAD, queue_rows(seen.queues)), (WORKER_HEAD, worker_rows(seen.workers, now=seen.at))):
        if rows:
            out.line()
            out.table(head, rows)


def totals(seen: Overview) -> str:
    """Format the number of tasks by status."""
    counts = [(status, seen.total(status)) for status in Status]
    return ", ".join(f"{count} {status}" for status, count in counts if count) or "none"


def rates(seen: Overview) -> str:
    """Format the throughput per second, or per minute if it is low."""
    rate = seen.throughput
    named = {
        "created": rate.created_per_s,
        "completed": rate.completed_per_s,
        "failed": rate.failed_per_s,
        "retried": rate.retried_per_s,
    }
    return ", ".join(f"{_rate(value)} {name}" for name, value in named.items())


def _rate(per_second: float) -> str:
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{per_second * 60:.0f}/min"


def dead_letters(seen: Overview) -> str:
    """Format the number of dead letters, with "+" if counting stopped at the limit."""
    more = "+" if seen.dead_letters >= seen.dead_letters_limit else ""
    return f"{seen.dead_letters}{more}"


# `ade top`: live statistics.


_MOST_RUNNING = 15  # rows shown


@command("top")
@click.option("--interval", type=DURATION, default=1.0, show_default="1s", help="The refresh interval.")
@click.option("--once", is_flag=True, help="Refresh once and exit.")
async def top(session: "Session", interval: float, once: bool) -> None:
    """Watch depths, throughput, workers and running tasks until Ctrl-C.

    To a pipe, and with --json, every refresh is printed.
    """
    if interval < 0.1:
        raise click.UsageError("--interval must be at least 0.1 seconds.")
    async with session.api() as api:
        if once or not session.out.is_terminal:
            await _print_looks(session, api, interval, once)
        else:
            await _draw_live(session, api, interval)


async def _look(api: "Client") -> tuple[Overview, Sequence[Task]]:
    return await api.get_stats(), (await api.list_tasks(status=[Status.RUNNING], limit=_MOST_RUNNING)).items


async def _print_looks(session: "Session", api: "Client", interval: float, once: bool) -> None:
    while True:
        seen, running = await _look(api)
        if session.out.as_json:
            session.out.record({**members_of(seen), "running": running})
        else:
            session.out.line(local(seen.at))
            print_overview(session.out, seen)
            session.out.line()
        if once:
            return
        await asyncio.sleep(interval)


async def _draw_live(session: "Session", api: "Client", interval: float) -> None:
    from ade.cli.terminal import live_screen, overview_of

    place = without_password(session.settings.store.url if session.server is None else session.server.url)
    with live_screen() as live:
        while True:
            seen, running = await _look(api)
            lines = [
                f"ade  {place}  {local(seen.at)}",
                f"tasks: {totals(seen)}   dead letters: {dead_letters(seen)}",
                f"last minute: {rates(seen)}",
            ]
            tables = [
                ("Queues", QUEUE_HEAD, queue_rows(seen.queues)),
                ("Workers", WORKER_HEAD, worker_rows(seen.workers, now=seen.at)),
                ("Running", TASK_HEAD, task_rows(running, now=seen.at)),
            ]
            live.update(overview_of(lines, tables, width=live.console.width, spare=SPARE), refresh=True)
            await asyncio.sleep(interval)
