"""`ade logs`: the lines a task has written."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from ade.cli.ids import find_id
from ade.cli.output import Output
from ade.cli.pages import all_of
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import clock_time
from ade.cli.views import line_view
from ade.core.records import OutputLine

if TYPE_CHECKING:
    from ade.client.client import Client


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
        self, out: Output, only: int | None = None, times: bool = False, write: Callable[[str], None] | None = None
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
