"""`ade wait`: wait until tasks are final, with a live view on a terminal, and print their results."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import structs

from ade.cli.command import command
from ade.cli.exit_codes import ExitCode
from ade.cli.ids import find_ids
from ade.cli.output import Cell, Row, compact, pretty
from ade.cli.parameters import DURATION, now_ms
from ade.errors import ResultExpired, TaskCancelled, TaskFailed, WaitTimeout
from ade.tasks.commands.tasks import status_cell
from ade.tasks.lifecycle import Status
from ade.tasks.model import MaybeRaw, Task
from ade.tasks.reasons import short_span

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


_REFRESH_S, _REFRESH_REMOTE_S = 0.25, 1.0
_MOST_SHOWN = 20
_MOST_ASKED = 50  # concurrent waits on a server; further tasks follow as these end


async def wait_for(session: "Session", api: "Client", task_ids: Sequence[str], timeout: float | None) -> ExitCode:
    """Wait for all tasks and print each as it ends. Raises WaitTimeout, or the failure of a single task."""
    unfinished = dict.fromkeys(task_ids)
    places = asyncio.Semaphore(len(task_ids) if session.server is None else _MOST_ASKED)

    async def end_of(task_id: str) -> Task:
        async with places:
            task = await api.wait_for_task(task_id)
        unfinished.pop(task_id, None)  # two lines with the same key share a task
        return task

    waiting = [asyncio.create_task(end_of(task_id)) for task_id in task_ids]
    problems = 0
    try:
        async with _live_view(session, api, unfinished), asyncio.timeout(timeout):
            for ended in asyncio.as_completed(waiting):
                task = await ended
                problems += task.status is not Status.COMPLETED
                await _print_end(session, api, task, alone=len(task_ids) == 1)
    except TimeoutError:
        raise WaitTimeout(f"not everything finished in {timeout:g} s; the tasks continue, wait again") from None
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return ExitCode.PROBLEM if problems else ExitCode.OK


async def _print_end(session: "Session", api: "Client", task: Task, *, alone: bool) -> None:
    out = session.out
    result = await result_of(api, task)
    if out.as_json:
        out.record(with_result(task, result))
    elif alone:
        raise_unless_completed(task)
        if result is not None:
            out.line(pretty(result))
    else:
        ended = compact(result) if result is not None else _why(task)
        out.line(f"{task.id}  {task.status}  {task.name}  {ended}")


async def result_of(api: "Client", task: Task) -> MaybeRaw:
    """Return the result of a finished task, of any size; None if it has expired."""
    if task.result is None:
        return None
    try:
        return (await api.get_task_result(task.id)).result
    except ResultExpired:
        return None


def with_result(task: Task, result: MaybeRaw) -> Task:
    """Return the task with its full result in place of a blob reference."""
    return task if result is None else structs.replace(task, result=result)


def _why(task: Task) -> str:
    return f"{task.error.type}: {task.error.message}" if task.error is not None else task.reason or ""


def raise_unless_completed(task: Task) -> None:
    """Raise TaskFailed or TaskCancelled for a task that did not complete."""
    if task.status is Status.FAILED:
        raise TaskFailed(f"task {task.id} ({task.name}) failed: {_why(task)}", task_id=task.id, error=task.error)
    if task.status is not Status.COMPLETED:
        raise TaskCancelled(f"task {task.id} ({task.name}) was {task.status}: {_why(task)}".rstrip(": "))


@asynccontextmanager
async def _live_view(session: "Session", api: "Client", unfinished: Mapping[str, None]) -> AsyncIterator[None]:
    """On a terminal, show the unfinished tasks and redraw until the block ends."""
    if not session.out.shows_progress:
        yield
        return
    from ade.cli.terminal import fitted, live_table, table_of

    live = live_table()
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
    """Format progress: a number from 0 to 1 or `[done, total]` as a bar, anything else as JSON."""
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


@command("wait")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", type=DURATION, help="Give up after this time (90s, 5m); the tasks continue.")
async def wait(session: "Session", task_ids: tuple[str, ...], timeout: float | None) -> int:
    """Wait until tasks are final and print each result as it arrives.

    Exit code 0 when all completed, 1 when one did not, 124 after a timeout.
    """
    async with session.api() as api:
        return await wait_for(session, api, await find_ids(api, task_ids), timeout)
