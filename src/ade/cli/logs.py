"""`ade logs`: the lines a task has written."""

import click

from ade.cli.ids import find_id
from ade.cli.output import Output
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import clock_time
from ade.cli.views import line_view
from ade.core.records import OutputLine
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
    session.run(_logs(session, task_id, follow, _Printer(session.out, attempt, times)))


class _Printer:
    """Prints lines and tells where a new attempt begins."""

    def __init__(self, out: Output, only: int | None, times: bool) -> None:
        self._out = out
        self._only = only
        self._times = times
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
        self._out.line(f"{clock_time(line.at)}  {line.text}" if self._times else line.text)


async def _logs(session: Session, text: str, follow: bool, printer: _Printer) -> None:
    async with session.stores() as stores:
        task_id = await find_id(stores, text)
        await get(stores, task_id)  # UnknownTask beats silence
        while True:
            seen = stores.hints.generation(DONE)
            is_complete = not follow or (await get(stores, task_id)).is_final  # before reading: the end is read too
            await _print_new(stores, task_id, printer)
            if is_complete:
                break
            await stores.hints.wait(DONE, seen, _FOLLOW_S)
    if not printer.last:
        session.out.note("It has written no lines.")


async def _print_new(stores: Stores, task_id: str, printer: _Printer) -> None:
    while lines := await stores.outputs.read_output(task_id, printer.last, _PAGE):
        printer.print(lines)
