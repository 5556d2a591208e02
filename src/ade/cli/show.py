"""`ade show`: all about one task."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import Raw

from ade.cli.attempts import Attempt, attempts_of
from ade.cli.ids import find_id
from ade.cli.listing import status_cell, took
from ade.cli.output import Cell, Output, Row, pretty
from ade.cli.pages import all_of
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import clock_time, local_with_distance, now_ms, short_span, span
from ade.cli.views import event_view, task_view, told_payload, view
from ade.core.errors import ResultExpired, StoreError
from ade.core.events import Event
from ade.core.records import Task
from ade.queue.payloads import is_reference

if TYPE_CHECKING:
    from ade.client.client import Client

_UNTOLD = ("run_id", "gate", "vote", "digest")  # too long for a line, or of no use to people
_MOST_PAYLOAD = 4_000  # characters; --full shows all


@command("show")
@click.argument("task_id", metavar="ID")
@click.option("--full", is_flag=True, help="Show payloads and tracebacks of any length.")
@pass_session
def show(session: Session, task_id: str, full: bool) -> None:
    """Show all about one task: its record, attempts, timeline, error and result.

    ID may be cut short to a part of its beginning or end that no other task shares.
    """
    session.look(_show(session, task_id, full))


async def _show(session: Session, text: str, full: bool) -> None:
    async with session.api() as api:
        task_id = await find_id(api, text)
        task = await api.get_task(task_id)
        args, result = await _args(api, task), await _result(api, task)
        events = await all_of(api, partial(api.list_task_events, task_id))
        review = None if task.review is None else (await api.get_approval(task_id)).review
    now = now_ms()
    attempts = attempts_of(events)
    if session.out.as_json:
        document = {**task_view(task), "args": args}
        if result is not None:
            document["result"] = result
        if review is not None:
            from ade.cli.approval_views import review_document

            document["review"] = review_document(review)
        told = {"attempts": [view(attempt) for attempt in attempts], "events": [event_view(event) for event in events]}
        session.out.document({**document, **told})
        return
    _print_record(session.out, task, now)
    _print_payload(session.out, "arguments", args, full)
    if review is not None:
        from ade.cli.approval_views import print_review

        print_review(session.out, review, now=now)
    _print_attempts(session.out, attempts)
    _print_timeline(session.out, events)
    _print_outcome(session.out, task, result, full)


async def _args(api: "Client", task: Task) -> Any:
    """The JSON itself; of a lost blob, what is known of it."""
    if not is_reference(task.args):
        return task.args
    try:
        return (await api.get_task(task.id, whole=True)).args
    except StoreError as error:
        return _lost(task.args, error)


async def _result(api: "Client", task: Task) -> Any:
    if task.result is None or not is_reference(task.result):
        return task.result
    try:
        return (await api.get_task_result(task.id)).result
    except ResultExpired:
        return None
    except StoreError as error:
        return _lost(task.result, error)


def _lost(reference: Raw, error: StoreError) -> Any:
    return {"lost": error.detail, "reference": msgspec.json.decode(reference)}


def _print_record(out: Output, task: Task, now: int) -> None:
    def seconds(ms: int | None) -> str:
        return "" if ms is None else span(ms)

    attempt = f"{task.attempt} of {task.max_attempts}" + (
        f", generation {task.generation}" if task.generation > 1 else ""
    )
    out.facts(
        [
            ("id", task.id),
            ("name", task.name),
            ("status", status_cell(task.status)),
            ("reason", task.reason or ""),
            ("discarded", "yes" if task.discarded else ""),
            ("description", task.description or ""),
            ("queue", f"{task.queue}, priority {task.priority}"),
            ("attempt", attempt),
            ("worker", task.worker_id or ""),
            ("progress", bytes(task.progress).decode(errors="replace") if task.progress is not None else ""),
            ("created", local_with_distance(task.created_at, now=now)),
            ("due", local_with_distance(task.run_after, now=now) if task.run_after > now else ""),
            ("deadline", local_with_distance(task.deadline, now=now)),
            ("started", local_with_distance(task.started_at, now=now)),
            ("finished", local_with_distance(task.finished_at, now=now)),
            ("took", took(task, now=now)),
            ("time limit", seconds(task.timeout_ms)),
            ("waits for", ", ".join(task.depends_on)),
            ("parent", task.parent_id or ""),
            ("key", task.idempotency_key or ""),
            ("limit key", task.concurrency_key or ""),
            ("resources", ", ".join(task.resources)),
            ("rollback", task.rollback or ""),
            ("locks", ", ".join(f"{wish.resource} ({wish.mode})" for wish in task.locks)),
            ("needs", ", ".join(task.needs)),
            ("tags", ", ".join(task.tags)),
            ("source", task.source if task.source != "user" else ""),
            ("author", task.author_id or ""),
        ]
    )


def _print_payload(out: Output, title: str, payload: Any, full: bool) -> None:
    text = pretty(payload)
    if text == "{}" and title == "arguments":
        return
    out.line()
    out.styled(title, bold=True)
    out.line(_cut(text, full))


def _print_attempts(out: Output, attempts: list[Attempt]) -> None:
    if not attempts:
        return
    out.line()
    out.styled("attempts", bold=True)
    rows: list[Row] = [
        (
            attempt.label,
            clock_time(attempt.started_at),
            "" if attempt.ended_at is None else short_span(attempt.ended_at - attempt.started_at),
            Cell(attempt.ended, "green" if attempt.ended == "succeeded" else ""),
            attempt.worker or "",
            attempt.error or "",
        )
        for attempt in attempts
    ]
    out.table(("attempt", "started", "took", "ended", "worker", "error"), rows)


def _print_timeline(out: Output, events: list[Event]) -> None:
    if not events:
        return
    out.line()
    out.styled("timeline", bold=True)
    rows: list[Row] = []
    before = events[0].at
    for event in events:
        told = ", ".join(f"{name}={value}" for name, value in told_payload(event).items() if name not in _UNTOLD)
        rows.append((clock_time(event.at), f"+{short_span(event.at - before)}", event.type, event.actor or "", told))
        before = event.at
    out.table(("at", "after", "event", "by", "about"), rows)


def _print_outcome(out: Output, task: Task, result: Any, full: bool) -> None:
    if task.error is not None:
        out.line()
        out.styled("error", bold=True)
        out.styled(f"{task.error.type}: {task.error.message}", fg="red")
        trace = (task.error.details or {}).get("traceback")
        if isinstance(trace, str):
            out.line(_cut(trace.rstrip(), full))
    if result is not None:
        _print_payload(out, "result", result, full)
    elif task.result_expired:
        out.note("The result was kept for its result_ttl and is gone.")


def _cut(text: str, full: bool) -> str:
    if full or len(text) <= _MOST_PAYLOAD:
        return text
    return f"{text[:_MOST_PAYLOAD]}\n… {len(text) - _MOST_PAYLOAD:,} more characters; --full shows them"
