"""`ade cancel`, `ade reschedule`, and `ade logs`: cancel or reschedule tasks, print their output, follow changes."""

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from ade.cli.command import command
from ade.cli.identity import as_option
from ade.cli.ids import find_id, find_ids
from ade.cli.interaction import confirm, progress
from ade.cli.output import CommandOutput, all_of
from ade.cli.parameters import DURATION, MOMENT, PRIORITY, clock_time, local_with_distance, now_ms
from ade.server.request_types import MOST_TOGETHER
from ade.tasks.api.requests import TaskFilter
from ade.tasks.bulk import MOST_COUNTED, BulkPreview, BulkReport, combined
from ade.tasks.commands.tasks import TaskFilterOptions, chosen, filter_options, is_empty
from ade.tasks.model import OutputLine, Task

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


@command("cancel")
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@filter_options
@click.option("--reason", help="The reason; stored with the tasks.")
@click.option("--yes", is_flag=True, help="Do not ask before cancelling all matching tasks.")
async def cancel(
    session: "Session", task_ids: tuple[str, ...], reason: str | None, yes: bool, **given: Unpack[TaskFilterOptions]
) -> None:
    """Cancel tasks immediately, with their unfinished children. A late result is rejected.

    Give ids or a filter; with a filter, the number of matching tasks is shown and you are asked first.
    """
    if bool(task_ids) != is_empty(given):
        raise click.UsageError("Name tasks by id, or give a filter such as --queue or --name; not both.")
    if task_ids:
        await _cancel_by_id(session, task_ids, reason)
    else:
        await _cancel_by_filter(session, given, reason, yes)


async def _cancel_by_id(session: "Session", texts: Sequence[str], reason: str | None) -> None:
    async with session.api() as api:
        for task_id in await find_ids(api, texts):
            task = await api.cancel_task(task_id, reason=reason)
            if session.out.as_json:
                session.out.record(task)
            else:
                session.out.line(f"{task.id}  {task.status}  {task.name}")


async def _cancel_by_filter(session: "Session", given: TaskFilterOptions, reason: str | None, yes: bool) -> None:
    wanted = chosen(given, now=now_ms())
    async with session.api() as api:
        reach = await _counted(api, wanted)
        if not reach.count:
            session.out.note("No unfinished task that can be cancelled matches.")
        else:
            or_more = " or more" * reach.is_more
            tasks = f"{reach.count}{or_more} task{'s' * (reach.count != 1)}"
            confirm(session, f"{tasks} would be cancelled.", yes=yes)
        reached = await _cancel_all(session, api, wanted, reach, reason)
    if session.out.as_json:
        session.out.document(reached)
    elif reach.count:
        matched = max(reached.reached, reach.count)
        session.out.line(f"Cancelled {len(reached.changed)} of {matched} tasks.")
        for each in reached.refused:
            session.out.line(f"Refused {each.count} ({each.code}): {each.reason}")


async def _counted(api: "Client", wanted: TaskFilter) -> BulkPreview:
    """Count the tasks that would be cancelled, in as many calls as it takes to examine all of them."""
    count, cursor = 0, None
    while True:
        found = await api.preview_bulk_action(action="cancel", filter=wanted, cursor=cursor)
        count, cursor = count + found.count, found.next
        if not found.is_partial or cursor is None or count >= MOST_COUNTED:
            return BulkPreview(count=count, is_more=found.is_more)


async def _cancel_all(
    session: "Session", api: "Client", wanted: TaskFilter, reach: BulkPreview, reason: str | None
) -> BulkReport:
    """Cancel the tasks that are still unfinished, oldest first, and no more than were counted."""
    reports, cursor, is_more = list[BulkReport](), None, reach.count > 0
    with progress(session, "Cancelling", reach.count) as bar:
        while is_more:
            left = reach.count - sum(report.reached for report in reports)
            limit = MOST_TOGETHER if reach.is_more else min(left, MOST_TOGETHER)
            done = await api.run_bulk_action(action="cancel", filter=wanted, reason=reason, limit=limit, cursor=cursor)
            reports.append(done)
            bar.advance(len(done.changed))
            cursor = done.next
            is_more = cursor is not None and (reach.is_more or left > done.reached)
    return combined(reports)


# `ade reschedule`: another priority or start time for pending tasks.


@command("reschedule")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--priority", type=PRIORITY, help="urgent (1), high (3), normal (5), low (7), or 0 (first) to 9 (last).")
@click.option("--now", is_flag=True, help="Start as soon as a worker is free.")
@click.option("--delay", type=DURATION, help="Start after this time (30s, 5m).")
@click.option("--at", "run_at", type=MOMENT, metavar="TIME", help="Start at this date and time.")
@as_option
async def reschedule(
    session: "Session",
    task_ids: tuple[str, ...],
    priority: int | None,
    now: bool,
    delay: float | None,
    run_at: datetime | None,
) -> None:
    """Change the priority or the start time of pending tasks. Approvals stay valid.

    `--now` also ends the delay before a retry. A task that is running, final, or not approved yet is refused.
    """
    starts = [now, delay is not None, run_at is not None]
    if sum(starts) > 1 or not (any(starts) or priority is not None):
        raise click.UsageError("Name what to change: --priority, and one of --now, --delay, and --at.")
    async with session.api() as api:
        for task_id in await find_ids(api, task_ids):
            task = await api.reschedule_task(
                task_id, priority=priority, delay=0 if now else delay, run_at=run_at, if_match=None
            )
            if session.out.as_json:
                session.out.record(task)
            else:
                starts_at = "now" if task.run_after <= now_ms() else local_with_distance(task.run_after, now=now_ms())
                session.out.line(f"{task.id}  {task.name}  priority {task.priority}, starts {starts_at}")


# `ade logs`: the output of a task.


@command("logs", reads=lambda follow, **_: not follow)
@click.argument("task_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Follow until the task is final.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only the lines of this attempt.")
@click.option("--times", is_flag=True, help="Prefix each line with its time.")
async def logs(session: "Session", task_id: str, follow: bool, attempt: int | None, times: bool) -> None:
    """Print the lines a task has written with `ctx.log`, oldest first."""
    printer = LinePrinter(session.out, attempt, times)
    async with session.api() as api:
        found = await find_id(api, task_id)
        if follow:
            await api.get_task(found)  # raise UnknownTask instead of waiting for output
            await follow_output(api, found, printer)
        else:
            for line in await all_of(api, partial(api.get_task_output, found)):
                printer.print(line)
    if not printer.has_printed:
        session.out.note("It has written no lines.")


class LinePrinter:
    """Prints output lines, and marks where a new attempt starts."""

    def __init__(
        self,
        out: CommandOutput,
        only: int | None = None,
        times: bool = False,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self._out = out
        self._only = only
        self._times = times
        self._write = write or out.line
        self._run_id: str | None = None
        self.has_printed = False  # or has skipped lines of other attempts

    def print(self, line: OutputLine) -> None:
        self.has_printed = True
        if self._only in (None, line.attempt):
            self._print_one(line)

    def _print_one(self, line: OutputLine) -> None:
        if self._out.as_json:
            self._out.record(line)
            return
        if self._run_id not in (None, line.run_id):
            self._out.note(f"-- attempt {line.attempt}")
        self._run_id = line.run_id
        self._write(f"{clock_time(line.at)}  {line.text}" if self._times else line.text)


async def follow_output(api: "Client", task_id: str, printer: LinePrinter) -> None:
    """Print lines as they arrive until the task is final."""
    async for line in api.follow_output(task_id):
        printer.print(line)


# The state of a task after each of its events.


async def changes_of(api: "Client", task_id: str) -> AsyncGenerator[Task, None]:
    """Yield the task now and after every event; never ends on its own."""
    known = await all_of(api, partial(api.list_task_events, task_id))  # before the task, to miss no event
    yield await api.get_task(task_id)
    async for _ in api.follow_events(after=known[-1].seq if known else 0, tasks=[task_id]):
        yield await api.get_task(task_id)
