"""`ade queues`: list, pause, resume, limit."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ade.cli.command import command, group, pass_session
from ade.cli.output import Cell, CommandOutput, Row, all_of
from ade.cli.session import Session
from ade.server.wire_cli import overview_view, queue_view, view
from ade.tasks.lifecycle import Status
from ade.tasks.model import Queue
from ade.tasks.overview import Overview, QueueView
from ade.tasks.reasons import short_span
from ade.worker.commands.workers import WORKER_HEAD, worker_rows

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.common.calls import Call


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


# `ade stats`: the state of everything, once.


@command("stats")
@pass_session
def stats(session: Session) -> None:
    """Show depths, ages, throughput and workers once."""
    session.look(_stats(session))


async def _stats(session: Session) -> None:
    async with session.api() as api:
        seen = await api.get_stats()
    if session.out.as_json:
        session.out.document(overview_view(seen))
        return
    print_overview(session.out, seen)


def print_overview(out: CommandOutput, seen: Overview) -> None:
    out.facts([("tasks", totals(seen)), ("last minute", rates(seen)), ("dead letters", dead_letters(seen))])
    for head, rows in ((QUEUE_HEAD, queue_rows(seen.queues)), (WORKER_HEAD, worker_rows(seen.workers, now=seen.at))):
        if rows:
            out.line()
            out.table(head, rows)


def totals(seen: Overview) -> str:
    counts = [(status, seen.total(status)) for status in Status]
    return ", ".join(f"{count} {status}" for status, count in counts if count) or "none"


def rates(seen: Overview) -> str:
    """From the newest events: per second or, where little happens, per minute."""
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
    more = "+" if seen.dead_letters >= seen.dead_letters_limit else ""
    return f"{seen.dead_letters}{more}"
