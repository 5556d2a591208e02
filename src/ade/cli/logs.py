"""`ade logs`: the lines a task has written."""

from collections.abc import Callable

import click

from ade.cli.ids import find_id
from ade.cli.output import Output
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import clock_time
from ade.cli.views import line_view
from ade.core.records import OutputLine, Task
from ade.ports import DONE, Stores
from ade.queue.tasks import get

_PAGE = 500
_FOLLOW_S = 0.3  # how often a follower looks; lines are not announced


@command("logs")
@click.argument("task_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task is final.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only the lines of this attempt.")
@click.option("--times", is_flag=True, help="Put the time in front of each line.")
@pass_session
def logs(session: Session, task_id: str, follow: bool, attempt: int | None, times: bool) -> None:
    """Print the lines a task has written with `ctx.log`, oldest first."""
    session.run(_logs(session, task_id, follow, LinePrinter(session.out, attempt, times)))


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
        self.last = 0

    def print(self, lines: list[OutputLine]) -> None:
        for line in lines:
            self.last = line.seq
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
    async with session.stores() as stores:
        task_id = await find_id(stores, text)
        await get(stores, task_id)  # UnknownTask beats silence
        if follow:
            await follow_output(stores, task_id, printer)
        else:
            await _print_new(stores, task_id, printer)
    if not printer.last:
        session.out.note("It has written no lines.")


async def follow_output(
    stores: Stores, task_id: str, printer: LinePrinter, look: Callable[[Task], None] | None = None
) -> Task:
    """Print lines as they come until the task is final; answers it. `look` sees it now and then on the way."""
    while True:
        seen = stores.hints.generation(DONE)
        task = await get(stores, task_id)  # before reading: the end is read too
        if look is not None:
            look(task)
        await _print_new(stores, task_id, printer)
        if task.is_final:
            return task
        await stores.hints.wait(DONE, seen, _FOLLOW_S)


async def _print_new(stores: Stores, task_id: str, printer: LinePrinter) -> None:
    while lines := await stores.outputs.read_output(task_id, printer.last, _PAGE):
        printer.print(lines)
