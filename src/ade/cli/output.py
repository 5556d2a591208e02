"""What a command writes: tables on a terminal, plain aligned text to a pipe, JSON where it was asked for.

Answers go to stdout; what is said beside them goes to stderr. Text that comes from tasks is made harmless for
terminals. rich is loaded only when a terminal really gets something drawn.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import msgspec

from ade.tasks.identifiers import is_task_id

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from ade.client.client import Client
    from ade.common.calls import Call
    from ade.server.pagination import Page


class Cell(NamedTuple):
    """A cell of a table that is not plain; `style` is a word of rich, such as `red` or `dim`."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]
_LEAST_LAST = 30  # characters that the last column, which may break its lines, should have


def printable(text: str, *, lines: bool = False) -> str:
    """The text without control characters, which could move a cursor or rewrite what was printed before."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or (lines and char in "\n\t") else char.encode("unicode_escape").decode()
        for char in text
    )


def pretty(value: object) -> str:
    """JSON for reading."""
    return msgspec.json.format(_encoded(value), indent=2).decode()


def compact(value: object) -> str:
    """JSON on one line."""
    return _encoded(value).decode()


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def aligned(head: Sequence[str], rows: Sequence[Row]) -> Iterable[str]:
    """A table as lines of text; the last column is not padded."""
    texts = [[printable(_text(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    for row in [head, *texts]:
        padded = [text.ljust(width) for text, width in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*padded, row[-1]]).rstrip()


def _text(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


class CommandOutput:
    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    @property
    def is_terminal(self) -> bool:
        """Whether people look at the answer as it comes."""
        return not self.as_json and sys.stdout.isatty()

    @property
    def shows_progress(self) -> bool:
        """Whether people would like to see how far it is."""
        return not self.as_json and not self.quiet and sys.stderr.isatty()

    @cached_property
    def console(self) -> "Console":
        from rich.console import Console

        return Console(file=sys.stdout, highlight=False, soft_wrap=False)

    def document(self, value: object) -> None:
        """The one JSON document that is the answer; easy to read where people read it."""
        click.echo(pretty(value) if sys.stdout.isatty() else compact(value))

    def record(self, value: object) -> None:
        """One JSON document of many, on a line of its own, there at once for whoever follows."""
        click.echo(compact(value))
        sys.stdout.flush()

    def line(self, text: str = "") -> None:
        click.echo(printable(text, lines=True))

    def styled(self, text: str, **style: Any) -> None:
        """A line with click's styles; to a pipe they vanish."""
        click.secho(printable(text, lines=True), **style)

    def note(self, text: str) -> None:
        """Something beside the answer, for people."""
        if not self.quiet and not self.as_json:
            click.echo(printable(text, lines=True), err=True)

    def table(self, head: Sequence[str], rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
        """`spare` names columns that a narrow terminal can do without, the first to go first."""
        if not rows:
            return
        if self.is_terminal:
            self.draw(table_of(*fitted(head, rows, self.console.width, spare)))
        else:
            for line in aligned([title.upper() for title in head], rows):
                click.echo(line)

    def facts(self, pairs: Iterable[tuple[str, str | Cell]]) -> None:
        """Names and values, one pair per line."""
        known = [(name, value) for name, value in pairs if _text(value)]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            label = click.style(name.ljust(width), dim=True) if self.is_terminal else name.ljust(width)
            click.echo(f"{label}  {printable(_text(value), lines=True)}")

    def draw(self, drawing: "RenderableType") -> None:
        self.console.print(drawing)


def fitted(
    head: Sequence[str], rows: Sequence[Row], width: int, spare: Sequence[str]
) -> tuple[Sequence[str], Sequence[Row]]:
    """What fits the width: ids are cut to their end, which is enough to name a task, then spare columns go."""

    def is_wide() -> bool:
        widths = [max(len(_text(cell)) for cell in column) for column in zip(head, *rows, strict=True)] or [0]
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


def table_of(head: Sequence[str], rows: Sequence[Row], *, title: str | None = None) -> "Table":
    """For a terminal: columns that shrink rather than break the line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for index, name in enumerate(head):
        is_last = index == len(head) - 1
        table.add_column(name, overflow="ellipsis", no_wrap=not is_last, min_width=min(len(name), 4))
    for row in rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        table.add_row(*(Text(printable(cell.text), style=cell.style) for cell in cells))
    return table


# Lists that come page by page, as a whole or up to a length.


T = TypeVar("T")
_LARGEST = 500  # items that one page may have


async def all_of(api: "Client", listing: "Callable[..., Call[Page[T]]]", **filters: Any) -> list[T]:
    """Everything that a list has: `await all_of(api, api.list_queues)`."""
    return [item async for item in api.every(listing, limit=_LARGEST, **filters)]


async def first_of(
    listing: "Callable[..., Call[Page[T]]]", *path: str, limit: int, largest: int = _LARGEST, **filters: Any
) -> list[T]:
    """The first of it, so many at most; `largest` is what one page may have."""
    return list((await first_page(listing, *path, limit=limit, largest=largest, **filters)).items)


async def first_page(
    listing: "Callable[..., Call[Page[T]]]",
    *path: str,
    limit: int,
    cursor: str | None = None,
    largest: int = _LARGEST,
    **filters: Any,
) -> "Page[T]":
    """The same with where it goes on, however long it is."""
    found: list[T] = []
    while True:
        page = await listing(*path, limit=min(limit - len(found), largest), cursor=cursor, **filters)
        found += page.items
        cursor = page.next
        if cursor is None or len(found) >= limit:
            from ade.server.pagination import Page

            return Page(items=found, next=cursor)
