"""Wait until tasks are final, with a live view where people watch, and tell how they ended."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import click
import msgspec

from ade.cli.command import command, pass_session
from ade.cli.exit_codes import ExitCode
from ade.cli.ids import find_id, find_ids
from ade.cli.interaction import confirm, progress
from ade.cli.output import Cell, CommandOutput, Row, all_of, compact, fitted, pretty, table_of
from ade.cli.parameters import DURATION, clock_time, now_ms
from ade.cli.session import Session
from ade.errors import ResultExpired, TaskCancelled, TaskFailed, WaitTimeout
from ade.server.wire_cli import line_view, task_view
from ade.tasks.api.requests import MOST_TOGETHER, TaskFilter
from ade.tasks.commands.tasks import TaskFilterOptions, chosen, filter_options, is_empty, status_cell
from ade.tasks.lifecycle import Status
from ade.tasks.model import MaybeRaw, OutputLine, Task
from ade.tasks.reasons import short_span

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.tasks.bulk import BulkPreview


_REFRESH_S, _REFRESH_REMOTE_S = 0.25, 1.0
_MOST_SHOWN = 20
_MOST_ASKED = 50  # of a server at a time; the others are asked for when one of them has ended


async def wait_for(session: Session, api: "Client", task_ids: Sequence[str], timeout: float | None) -> ExitCode:
    """Wait for all, printing each as it ends. Raises WaitTimeout, and for a single task that did not complete."""
    unfinished = dict.fromkeys(task_ids)
    places = asyncio.Semaphore(len(task_ids) if session.server is None else _MOST_ASKED)

    async def end_of(task_id: str) -> Task:
        async with places:
            task = await api.wait_for_task(task_id)
        unfinished.pop(task_id, None)  # of two lines with one key it is the same task
        return task

    waiting = [asyncio.create_task(end_of(task_id)) for task_id in task_ids]
    problems = 0
    try:
        async with _live_view(session, api, unfinished), asyncio.timeout(timeout):
            for ended in asyncio.as_completed(waiting):
                task = await ended
                problems += task.status is not Status.COMPLETED
                await _tell(session, api, task, alone=len(task_ids) == 1)
    except TimeoutError:
        raise WaitTimeout(f"not everything finished in {timeout:g} s; it goes on, ask again") from None
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return ExitCode.PROBLEM if problems else ExitCode.OK


async def _tell(session: Session, api: "Client", task: Task, *, alone: bool) -> None:
    out = session.out
    result = await result_of(api, task)
    if out.as_json:
        out.record({**task_view(task), **({} if result is None else {"result": result})})
    elif alone:
        raise_unless_completed(task)
        if result is not None:
            out.line(pretty(result))
    else:
        ended = compact(result) if result is not None else _why(task)
        out.line(f"{task.id}  {task.status}  {task.name}  {ended}")


async def result_of(api: "Client", task: Task) -> MaybeRaw:
    """The result of a task that has ended, however large; None if there is none any more."""
    if task.result is None:
        return None
    try:
        return (await api.get_task_result(task.id)).result
    except ResultExpired:
        return None


def _why(task: Task) -> str:
    return f"{task.error.type}: {task.error.message}" if task.error is not None else task.reason or ""


def raise_unless_completed(task: Task) -> None:
    if task.status is Status.FAILED:
        raise TaskFailed(f"task {task.id} ({task.name}) failed: {_why(task)}", task_id=task.id, error=task.error)
    if task.status is not Status.COMPLETED:
        raise TaskCancelled(f"task {task.id} ({task.name}) was {task.status}: {_why(task)}".rstrip(": "))


@asynccontextmanager
async def _live_view(session: Session, api: "Client", unfinished: Mapping[str, None]) -> AsyncIterator[None]:
    """On a terminal: what the tasks are doing, redrawn until the block ends."""
    if not session.out.shows_progress:
        yield
        return
    from rich.console import Console
    from rich.live import Live

    live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
    pause_s = _REFRESH_S if session.server is None else _REFRESH_REMOTE_S

    async def redraw() -> None:
        while True:
            shown = await asyncio.gather(*(api.get_task(task_id) for task_id in list(unfinished)[:_MOST_SHOWN]))
            head = ("id", "status", "name", "attempt", "for", "progress")
            rows = _rows(shown, len(unfinished) - len(shown))
            fitting = fitted(head, rows, live.console.width, ("attempt", "for"))
            live.update(table_of(*fitting), refresh=True)
            await asyncio.sleep(pause_s)

    with live:
        drawing = asyncio.create_task(redraw())
        try:
            yield
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)


def _rows(tasks: Sequence[Task], more: int) -> list[Row]:
    now = now_ms()
    rows: list[Row] = [
        (
            task.id,
            status_cell(task.status),
            task.name,
            f"{task.attempt}/{task.max_attempts}",
            short_span(now - (task.started_at or task.created_at)),
            progress_text(task),
        )
        for task in tasks
        if not task.is_final
    ]
    if more > 0:
        rows.append((Cell(f"and {more} more", "dim"), "", "", "", "", ""))
    return rows


def progress_text(task: Task) -> str:
    """A share between 0 and 1 as a bar, `[done, total]` too, everything else as it is."""
    if task.progress is None:
        return ""
    value = msgspec.json.decode(task.progress)
    share = _share(value)
    if share is None:
        return compact(value)
    filled = round(share * 20)
    return f"{'█' * filled}{'░' * (20 - filled)} {share:.0%}"


def _share(value: Any) -> float | None:
    if isinstance(value, dict) and "done" in value and "total" in value:
        value = [value["done"], value["total"]]
    if isinstance(value, list) and len(value) == 2 and all(type(part) in (int, float) for part in value) and value[1]:
        value = value[0] / value[1]
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else None


# `ade cancel`: stop tasks, by id or by filter.


@command("cancel")
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@filter_options
@click.option("--reason", help="Kept with the tasks.")
@click.option("--yes", is_flag=True, help="Do not ask before cancelling all that fit a filter.")
@pass_session
def cancel(
    session: Session, task_ids: tuple[str, ...], reason: str | None, yes: bool, **given: Unpack[TaskFilterOptions]
) -> None:
    """Stop tasks at once, whatever they are doing, and their unfinished children. A late result is refused.

    Give ids, or a filter; a filter shows how many tasks fit and asks first.
    """
    if bool(task_ids) != is_empty(given):
        raise click.UsageError("Name tasks by id, or give a filter such as --queue or --name; not both.")
    if task_ids:
        session.run(_cancel_by_id(session, task_ids, reason))
    else:
        session.run(_cancel_by_filter(session, given, reason, yes))


async def _cancel_by_id(session: Session, texts: Sequence[str], reason: str | None) -> None:
    async with session.api() as api:
        for task_id in await find_ids(api, texts):
            _tell_cancel(session, await api.cancel_task(task_id, reason=reason))


async def _cancel_by_filter(session: Session, given: TaskFilterOptions, reason: str | None, yes: bool) -> None:
    wanted = chosen(given, now=now_ms())
    async with session.api() as api:
        reach = await api.preview_bulk_action(action="cancel", filter=wanted)
        if not reach.count:
            session.out.note("No unfinished task fits.")
        else:
            or_more = " or more" * reach.is_more
            tasks = f"{reach.count}{or_more} task{'s' * (reach.count != 1)}"
            confirm(session, f"{tasks} would be cancelled.", yes=yes)
        cancelled, matched = await _cancel_all(session, api, wanted, reach, reason)
    if session.out.as_json:
        session.out.document({"cancelled": cancelled, "matched": matched})
    elif matched:
        session.out.line(f"Cancelled {len(cancelled)} of {matched} tasks.")


async def _cancel_all(
    session: Session, api: "Client", wanted: TaskFilter, reach: "BulkPreview", reason: str | None
) -> tuple[list[str], int]:
    """Those that are still unfinished when their turn comes, oldest first, and no more than were told of; and how many
    there were."""
    cancelled: list[str] = []
    tried, is_more = 0, reach.count > 0
    with progress(session, "Cancelling", reach.count) as bar:
        while is_more and (reach.is_more or tried < reach.count):
            limit = MOST_TOGETHER if reach.is_more else min(reach.count - tried, MOST_TOGETHER)
            done = await api.run_bulk_action(action="cancel", filter=wanted, reason=reason, limit=limit)
            cancelled += done.changed
            tried += len(done.changed) + len(done.moved_on)
            is_more = done.is_more and bool(done.changed or done.moved_on)
            bar.advance(len(done.changed))
    return cancelled, max(tried, reach.count)


def _tell_cancel(session: Session, task: Task) -> None:
    if session.out.as_json:
        session.out.record(task_view(task))
    else:
        session.out.line(f"{task.id}  {task.status}  {task.name}")


# `ade logs`: the lines a task has written.


@command("logs")
@click.argument("task_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task is final.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only the lines of this attempt.")
@click.option("--times", is_flag=True, help="Put the time in front of each line.")
@pass_session
def logs(session: Session, task_id: str, follow: bool, attempt: int | None, times: bool) -> None:
    """Print the lines a task has written with `ctx.log`, oldest first."""
    carry_out = session.run if follow else session.look
    carry_out(_logs(session, task_id, follow, LinePrinter(session.out, attempt, times)))


class LinePrinter:
    """Prints lines and tells where a new attempt begins."""

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
        self.has_printed = False  # or has left out what was not asked for

    def print(self, line: OutputLine) -> None:
        self.has_printed = True
        if self._only in (None, line.attempt):
            self._print_one(line)

    def _print_one(self, line: OutputLine) -> None:
        if self._out.as_json:
            self._out.record(line_view(line))
            return
        if self._run_id not in (None, line.run_id):
            self._out.note(f"-- attempt {line.attempt}")
        self._run_id = line.run_id
        self._write(f"{clock_time(line.at)}  {line.text}" if self._times else line.text)


async def _logs(session: Session, text: str, follow: bool, printer: LinePrinter) -> None:
    async with session.api() as api:
        task_id = await find_id(api, text)
        if follow:
            await api.get_task(task_id)  # UnknownTask beats silence
            await follow_output(api, task_id, printer)
        else:
            for line in await all_of(api, partial(api.get_task_output, task_id)):
                printer.print(line)
    if not printer.has_printed:
        session.out.note("It has written no lines.")


async def follow_output(api: "Client", task_id: str, printer: LinePrinter) -> None:
    """Print lines as they come until the task is final."""
    async for line in api.follow_output(task_id):
        printer.print(line)


# `ade wait`: until tasks are final.


@command("wait")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", type=DURATION, help="Give up after so long (90s, 5m); the tasks go on.")
@pass_session
def wait(session: Session, task_ids: tuple[str, ...], timeout: float | None) -> int:
    """Wait until tasks are final and print their results, each when it is there.

    Exit code 0 when all completed, 1 when one did not, 124 when the time was up.
    """
    return session.run(_wait(session, task_ids, timeout))


async def _wait(session: Session, texts: tuple[str, ...], timeout: float | None) -> int:
    async with session.api() as api:
        return await wait_for(session, api, await find_ids(api, texts), timeout)


# What becomes of a task, seen whenever something has happened to it.


async def changes_of(api: "Client", task_id: str) -> "AsyncGenerator[Task, None]":
    """The task as it is, and again after every event; never ends by itself."""
    known = await all_of(api, partial(api.list_task_events, task_id))  # before the task: nothing comes in between
    yield await api.get_task(task_id)
    async for _ in api.follow_events(after=known[-1].seq if known else 0, tasks=[task_id]):
        yield await api.get_task(task_id)
