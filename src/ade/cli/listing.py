"""How tasks look in a table."""

from collections.abc import Sequence

from ade.cli.output import Cell, Row
from ade.cli.times import distance, short_span
from ade.core.lifecycle import Status
from ade.core.records import Task

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

SPARE = ("prio", "took", "queue", "attempt")  # columns of a task that narrow terminals do without
TASK_HEAD = ("id", "status", "name", "queue", "prio", "attempt", "created", "took", "note")
_MOST_NOTE = 100


def task_rows(tasks: Sequence[Task], *, now: int) -> list[Row]:
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
    return Cell(str(status), STYLES[status])


def took(task: Task, *, now: int) -> str:
    """How long its last run took, or has taken so far."""
    if task.started_at is None:
        return ""
    if task.status is Status.RUNNING:
        return short_span(now - task.started_at)
    return short_span(task.finished_at - task.started_at) if task.finished_at is not None else ""


def note(task: Task, *, now: int) -> str:
    """The one thing worth knowing about it."""
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
