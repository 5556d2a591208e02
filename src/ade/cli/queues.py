"""`ade queues`: list, pause, resume, limit."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ade.cli.output import Cell, Row
from ade.cli.pages import all_of
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import short_span
from ade.cli.views import queue_view, view
from ade.core.lifecycle import Status
from ade.core.records import Queue
from ade.insight.overview import QueueView

if TYPE_CHECKING:
    from ade.calls.call import Call
    from ade.client.client import Client

_MOST_DIGITS = re.compile("[1-9][0-9]{0,8}")


@group("queues", bare="list")
def queues() -> None:
    """List, pause, resume and limit queues. `ade queues` alone lists them."""


@queues.command("list")
@pass_session
def list_queues(session: Session) -> None:
    """List all queues with their depth and how long the oldest ready task has been waiting."""
    session.look(_list(session))


async def _list(session: Session) -> None:
    async with session.api() as api:
        seen = await all_of(api, api.list_queues)
    if session.out.as_json:
        session.out.document({"queues": [{**view(queue), "unfinished": queue.unfinished} for queue in seen]})
        return
    session.out.table(QUEUE_HEAD, queue_rows(seen))
    if not seen:
        session.out.note("No queue was used yet.")


QUEUE_HEAD = ("queue", "state", "pending", "running", "completed", "failed", "oldest ready", "limit")


def queue_rows(queues: list[QueueView]) -> list[Row]:
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
    return click.option("--new", is_flag=True, help="The queue need not exist yet.")(function)


@queues.command("pause")
@click.argument("name")
@_new_option
@pass_session
def pause(session: Session, name: str, new: bool) -> None:
    """Let no more tasks of the queue be claimed; running ones go on, and new ones may come in."""
    session.run(_change(session, lambda api: api.pause_queue(name, new=new), new=new))


@queues.command("resume")
@click.argument("name")
@pass_session
def resume(session: Session, name: str) -> None:
    """Let tasks of the queue be claimed again."""
    session.run(_change(session, lambda api: api.resume_queue(name)))


@queues.command("limit")
@click.argument("name")
@click.argument("depth", metavar="DEPTH|none")
@_new_option
@pass_session
def limit(session: Session, name: str, depth: str, new: bool) -> None:
    """Refuse new tasks while the queue has DEPTH unfinished ones; `none` takes the limit away."""
    if depth != "none" and not _MOST_DIGITS.fullmatch(depth):
        raise click.UsageError(f"{depth[:60]!r} is no limit: give a whole number from 1 to 999,999,999, or none.")
    max_depth = None if depth == "none" else int(depth)
    session.run(_change(session, lambda api: api.limit_queue(name, max_depth=max_depth, new=new), new=new))


async def _change(session: Session, change: "Callable[[Client], Call[Queue]]", *, new: bool = False) -> None:
    async with session.api(must_exist=not new) as api:
        queue = await change(api)
    if session.out.as_json:
        session.out.document(queue_view(queue))
    else:
        bound = "no limit" if queue.max_depth is None else f"at most {queue.max_depth} unfinished tasks"
        session.out.line(f"{queue.name}: {'paused' if queue.paused else 'open'}, {bound}")
