"""`ade show`, `ade tasks`, and `ade explain`, with the filter options and table rows that other commands share."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import click
import msgspec
from msgspec import Raw, structs

from ade.cli.command import command
from ade.cli.ids import find_id
from ade.cli.output import Cell, CommandOutput, Row, all_of, first_page, pretty
from ade.cli.parameters import clock_time, distance, local_payload, local_with_distance, moment_ms, now_ms
from ade.common.text import with_name
from ade.errors import ResultExpired, StoreError, with_advice
from ade.events.model import Event
from ade.tasks.api.requests import TaskFilter
from ade.tasks.attempts import AttemptSummary, attempts_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.payloads import is_reference
from ade.tasks.reasons import short_span, span

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


# Table rows.


STYLES: dict[Status, str] = {
    Status.DRAFT: "dim",
    Status.SUBMITTED: "cyan",
    Status.REVIEWING: "magenta",
    Status.APPROVED: "cyan",
    Status.PENDING: "yellow",
    Status.RUNNING: "bold blue",
    Status.STALLED: "bold yellow",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.REJECTED: "red",
    Status.CANCELLED: "dim",
}

SPARE = ("prio", "took", "queue", "attempt")  # columns that narrow terminals omit
TASK_HEAD = ("id", "status", "name", "queue", "prio", "attempt", "created", "took", "note")
_MOST_NOTE = 100


def task_rows(tasks: Sequence[Task], *, now: int) -> list[Row]:
    """Return table rows for TASK_HEAD."""
    return [
        (
            task.id,
            status_cell(task.status),
            task.name,
            task.queue,
            str(task.priority),
            f"{task.attempt}/{task.max_attempts}",
            distance(task.created_at, now=now),
            took(task, now=now),
            note(task, now=now),
        )
        for task in tasks
    ]


def status_cell(status: Status) -> Cell:
    """Return the status as a colored table cell."""
    return Cell(str(status), STYLES[status])


def took(task: Task, *, now: int) -> str:
    """Return how long the last run took, or has taken so far."""
    if task.started_at is None:
        return ""
    if task.status is Status.RUNNING:
        return short_span(now - task.started_at)
    return short_span(task.finished_at - task.started_at) if task.finished_at is not None else ""


def note(task: Task, *, now: int) -> str:
    """Return the most relevant fact: an error, a reason, progress, a wait, or the description."""
    if task.error is not None and task.status is not Status.COMPLETED:
        text = f"{task.error.type}: {task.error.message}"
    elif task.reason:
        text = task.reason
    elif task.status is Status.RUNNING and task.progress is not None:
        text = f"progress {bytes(task.progress).decode(errors='replace')}"
    elif task.status is Status.PENDING and task.waiting_on:
        text = f"waits for {task.waiting_on} task{'s' * (task.waiting_on != 1)}"
    elif task.status is Status.PENDING and task.run_after > now:
        text = f"due {distance(task.run_after, now=now)}"
    else:
        text = task.description or ""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= _MOST_NOTE else f"{first[: _MOST_NOTE - 1]}…"


# Filter options, the same for every command that selects tasks.


F = TypeVar("F", bound=Callable[..., Any])


class TaskFilterOptions(TypedDict):
    """The keyword arguments that `filter_options` passes to a command."""

    status: tuple[str, ...]
    queue: str | None
    name: str | None
    tag: str | None
    team: str | None
    ticket: str | None
    resource: str | None
    text: str | None
    since: str | None


def filter_options(function: F) -> F:
    """Add the filter options to a command; they arrive as TaskFilterOptions."""
    for option in (
        click.option("--since", metavar="TIME", help="Created since then: 30m, 2h, 7d, or a date and time."),
        click.option("--text", help="Part of the name, description, error message or id."),
        click.option("--resource", metavar="NAME", help="That change or lock this resource."),
        click.option("--ticket", metavar="REFERENCE", help="Of this ticket."),
        click.option("--team", help="Of this team."),
        click.option("--tag", help="With this tag."),
        click.option("--name", help="With this task name."),
        click.option("--queue", help="In this queue."),
        click.option(
            "--status",
            multiple=True,
            type=click.Choice([str(status) for status in Status]),
            help="In this status; repeatable.",
        ),
    ):
        function = option(function)
    return function


def is_empty(given: TaskFilterOptions) -> bool:
    """Whether no filter option was given."""
    return not any(given.values())


def chosen(given: TaskFilterOptions, *, now: int) -> TaskFilter:
    """Convert the options to the filter of a request. Raises InvalidFilter."""
    since = given["since"]
    return TaskFilter(
        status=[Status(status) for status in given["status"]],
        queue=given["queue"],
        name=given["name"],
        tag=given["tag"],
        team=given["team"],
        ticket=given["ticket"],
        resource=given["resource"],
        text=given["text"],
        created_from=None if since is None else datetime.fromtimestamp(moment_ms(since, now=now) / 1000, UTC),
    )


_HIDDEN = ("run_id", "gate", "vote", "digest")  # too long for a line, or not useful to readers
_MOST_PAYLOAD = 4_000  # characters; --full shows all


@command("show", reads=True)
@click.argument("task_id", metavar="ID")
@click.option("--full", is_flag=True, help="Show payloads and tracebacks of any length.")
async def show(session: "Session", task_id: str, full: bool) -> None:
    """Show one task: its record, attempts, timeline, error, and result.

    ID can be shortened to a unique part of its beginning or end.
    """
    async with session.api() as api:
        found = await find_id(api, task_id)
        task = await api.get_task(found)
        args, result = await _args(api, task), await _result(api, task)
        events = await all_of(api, partial(api.list_task_events, found))
        approval = None if task.review is None else await api.get_approval(found)
    attempts = attempts_of(events)
    if session.out.as_json:
        from ade.server.wire_format import members_of  # only for JSON output

        document: dict[str, Any] = {**members_of(task), "args": args}
        document |= {} if result is None else {"result": result}
        document |= {} if approval is None else {"approval": approval}
        session.out.document({**document, "attempts": attempts, "events": events})
        return
    now = now_ms()
    _print_record(session.out, task, now)
    _print_payload(session.out, "arguments", args, full)
    if approval is not None:
        from ade.approvals.commands.votes import print_review  # most tasks have no approval

        print_review(session.out, approval.review, now=now)
    _print_attempts(session.out, attempts)
    _print_timeline(session.out, events)
    _print_outcome(session.out, task, result, full)


async def _args(api: "Client", task: Task) -> Any:
    """Return the arguments as JSON; for a missing blob, its reference and the error."""
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


def _print_record(out: CommandOutput, task: Task, now: int) -> None:
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
            ("locks", ", ".join(f"{spec.resource} ({spec.mode})" for spec in task.locks)),
            ("needs", ", ".join(task.needs)),
            ("tags", ", ".join(task.tags)),
            ("team", task.team or ""),
            ("ticket", task.ticket_ref or ""),
            ("source", task.source if task.source != "user" else ""),
            ("author", with_name(task.author_id or "", task.author_name)),
        ]
    )


def _print_payload(out: CommandOutput, title: str, payload: Any, full: bool) -> None:
    text = pretty(payload)
    if text == "{}" and title == "arguments":
        return
    out.line()
    out.styled(title, bold=True)
    out.line(_cut(text, full))


def _print_attempts(out: CommandOutput, attempts: list[AttemptSummary]) -> None:
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


def _print_timeline(out: CommandOutput, events: list[Event]) -> None:
    if not events:
        return
    out.line()
    out.styled("timeline", bold=True)
    rows: list[Row] = []
    before = events[0].at
    for event in events:
        facts = ", ".join(f"{name}={value}" for name, value in local_payload(event).items() if name not in _HIDDEN)
        rows.append((clock_time(event.at), f"+{short_span(event.at - before)}", event.type, event.actor or "", facts))
        before = event.at
    out.table(("at", "after", "event", "by", "about"), rows)


def _print_outcome(out: CommandOutput, task: Task, result: Any, full: bool) -> None:
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
        out.note("The result expired after its result_ttl.")


def _cut(text: str, full: bool) -> str:
    if full or len(text) <= _MOST_PAYLOAD:
        return text
    return f"{text[:_MOST_PAYLOAD]}\n… {len(text) - _MOST_PAYLOAD:,} more characters; --full shows them"


# `ade tasks`: list tasks.


@command("tasks", reads=True)
@filter_options
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most this many.")
@click.option("--cursor", help="Continue after this cursor, as printed by the previous page.")
@click.option("--oldest-first", is_flag=True, help="Reverse the order.")
async def tasks(
    session: "Session", limit: int, cursor: str | None, oldest_first: bool, **given: Unpack[TaskFilterOptions]
) -> None:
    """List tasks, newest first. All conditions must hold."""
    now = now_ms()
    conditions = structs.asdict(chosen(given, now=now))
    order = "oldest" if oldest_first else "newest"
    async with session.api() as api:
        page = await first_page(api.list_tasks, limit=limit, cursor=cursor, order=order, **conditions)
    if session.out.as_json:
        session.out.document(page)
        return
    session.out.table(TASK_HEAD, task_rows(page.items, now=now), SPARE)
    if page.next is not None:
        session.out.note(f"More follow: --cursor {page.next}")
    elif not page.items:
        is_all = is_empty(given) and cursor is None
        session.out.note("No tasks yet. `ade enqueue NAME` creates one." if is_all else "No task matches.")


# `ade explain`: explain why a task is not running.


@command("explain", reads=True)
@click.argument("task_id", metavar="ID")
async def explain(session: "Session", task_id: str) -> None:
    """Explain why a task is not running, or how it ended. Reasons are in the order in which they must be resolved."""
    async with session.api() as api:
        explanation = await api.explain_task(await find_id(api, task_id))
    out = session.out
    if out.as_json:
        out.document(explanation)
        return
    first, *others = explanation.reasons
    out.styled(with_advice(explanation.sentence, first.advice), bold=out.is_terminal)
    for reason in others:
        out.line(f"- and {with_advice(reason.sentence, reason.advice)}")
