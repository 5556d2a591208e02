"""Terminal output: tables, live views, and progress bars. It loads rich, so it is imported only where needed."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ade.cli.interaction import ProgressBar
from ade.cli.output import Cell, Row, printable, text_of
from ade.tasks.identifiers import is_task_id

_LEAST_LAST = 30  # minimum width of the last column, which can wrap


def draw_table(head: Sequence[str], rows: Sequence[Row], spare: Sequence[str]) -> None:
    """Print a table to stdout, without the `spare` columns that do not fit."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
    console.print(table_of(*fitted(head, rows, console.width, spare)))


def fitted(
    head: Sequence[str], rows: Sequence[Row], width: int, spare: Sequence[str]
) -> tuple[Sequence[str], Sequence[Row]]:
    """Fit a table to the width: shorten task IDs to their end, which still identifies them, then drop spare columns."""

    def is_wide() -> bool:
        widths = [max(len(text_of(cell)) for cell in column) for column in zip(head, *rows, strict=True)] or [0]
        return sum(widths[:-1]) + 2 * len(widths) + min(widths[-1], _LEAST_LAST) > width

    if is_wide():
        rows = [[_short_id(cell) for cell in row] for row in rows]
    for name in spare:
        if not is_wide():
            break
        kept = [index for index, title in enumerate(head) if title != name]
        head, rows = [head[index] for index in kept], [[row[index] for index in kept] for row in rows]
    return head, rows


def _short_id(cell: str | Cell) -> str | Cell:
    return f"…{cell[-12:]}" if isinstance(cell, str) and is_task_id(cell) else cell


def table_of(head: Sequence[str], rows: Sequence[Row], *, title: str | None = None) -> Table:
    """Return a table whose columns shrink instead of wrapping."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for index, name in enumerate(head):
        is_last = index == len(head) - 1
        table.add_column(name, overflow="ellipsis", no_wrap=not is_last, min_width=min(len(name), 4))
    for row in rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        table.add_row(*(Text(printable(cell.text), style=cell.style) for cell in cells))
    return table


def live_table() -> Live:
    """Return a view on stderr that its owner redraws and that disappears at the end."""
    return Live(console=Console(stderr=True), transient=True, auto_refresh=False)


def live_screen() -> Live:
    """Return a view that fills the terminal."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
    return Live(console=console, screen=True, auto_refresh=False)


def overview_of(
    lines: Sequence[str],
    tables: Sequence[tuple[str, Sequence[str], Sequence[Row]]],
    *,
    width: int,
    spare: Sequence[str],
) -> RenderableType:
    """Return a bold first line, more lines, and titled tables; tables without rows are omitted."""
    title, *others = lines
    parts: list[RenderableType] = [Text(title, style="bold"), *map(Text, others)]
    for name, head, rows in tables:
        parts += [Text(), table_of(*fitted(head, rows, width, spare), title=f"[bold]{name}")] if rows else []
    return Group(*parts, Text("\nCtrl-C ends", style="dim"))


class _DrawnBar(ProgressBar):
    def __init__(self, drawn: Progress, line: TaskID, total: int) -> None:
        super().__init__(total)
        self._drawn = drawn
        self._line = line

    def move(self, done: int, total: int) -> None:
        super().move(done, total)
        self._drawn.update(self._line, completed=done, total=total or None)


@contextmanager
def drawn_bar(what: str, total: int) -> Iterator[ProgressBar]:
    """Show a progress bar on stderr during the block; a total of 0 is unknown."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        yield _DrawnBar(drawn, drawn.add_task(what, total=total or None), total)
