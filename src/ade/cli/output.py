"""What a command writes: tables on a terminal, plain aligned text to a pipe, JSON with --json.

Records are written as JSON in their external representation, the one that the HTTP interface returns. Results go to
stdout, status messages to stderr. Text that comes from tasks is made harmless for terminals. rich is loaded only when
something is drawn on a terminal.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import msgspec

from ade.common.calls import Call
from ade.server.pagination import Page

if TYPE_CHECKING:
    from ade.client.client import Client


class Cell(NamedTuple):
    """A cell of a table that is not plain; `style` is a word of rich, such as `red` or `dim`."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]


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


def _external(value: object) -> Any:
    from ade.server.wire_format import external  # only JSON needs it

    return external(value)


def aligned(head: Sequence[str], rows: Sequence[Row]) -> Iterable[str]:
    """A table as lines of text; the last column is not padded."""
    texts = [[printable(text_of(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    for row in [head, *texts]:
        padded = [text.ljust(width) for text, width in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*padded, row[-1]]).rstrip()


def text_of(cell: str | Cell) -> str:
    """The text of a cell, without its style."""
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

    def document(self, value: object) -> None:
        """Write the one JSON document of a command; indented on a terminal."""
        click.echo(pretty(_external(value)) if sys.stdout.isatty() else compact(_external(value)))

    def items(self, items: Sequence[object], next_cursor: str | None = None) -> None:
        """Write a list as the HTTP interface does."""
        self.document({"items": items} | ({} if next_cursor is None else {"next": next_cursor}))

    def record(self, value: object) -> None:
        """Write one JSON document of many, on a line of its own, without delay."""
        click.echo(compact(_external(value)))
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
            from ade.cli.terminal import draw_table

            draw_table(head, rows, spare)
        else:
            for line in aligned([title.upper() for title in head], rows):
                click.echo(line)

    def facts(self, pairs: Iterable[tuple[str, str | Cell]]) -> None:
        """Names and values, one pair per line."""
        known = [(name, value) for name, value in pairs if text_of(value)]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            label = click.style(name.ljust(width), dim=True) if self.is_terminal else name.ljust(width)
            click.echo(f"{label}  {printable(text_of(value), lines=True)}")


# Lists that come page by page, as a whole or up to a length.


T = TypeVar("T")
_LARGEST = 500  # items that one page may have


async def all_of(api: "Client", listing: Callable[..., Call[Page[T]]], **filters: Any) -> list[T]:
    """Everything that a list has: `await all_of(api, api.list_queues)`."""
    return [item async for item in api.every(listing, limit=_LARGEST, **filters)]


async def first_page(
    listing: Callable[..., Call[Page[T]]],
    *path: str,
    limit: int,
    cursor: str | None = None,
    largest: int = _LARGEST,
    **filters: Any,
) -> Page[T]:
    """The first `limit` items of it and the cursor behind them; `largest` is what one page may have."""
    found: list[T] = []
    while True:
        page = await listing(*path, limit=min(limit - len(found), largest), cursor=cursor, **filters)
        found += page.items
        cursor = page.next
        if cursor is None or len(found) >= limit:
            return Page(items=found, next=cursor)
