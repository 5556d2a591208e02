"""Command output: tables on a terminal, aligned plain text to a pipe, and JSON with --json.

JSON uses the external representation, the same as the HTTP interface. Results go to stdout, status messages to stderr.
Control characters in text from tasks are escaped. rich is loaded only to draw on a terminal.
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
    """A table cell with a style; `style` is a rich style such as `red` or `dim`."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]


def printable(text: str, *, lines: bool = False) -> str:
    """Escape control characters, which could move the cursor or overwrite earlier output."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or (lines and char in "\n\t") else char.encode("unicode_escape").decode()
        for char in text
    )


def pretty(value: object) -> str:
    """Return indented JSON."""
    return msgspec.json.format(_encoded(value), indent=2).decode()


def compact(value: object) -> str:
    """Return JSON on one line."""
    return _encoded(value).decode()


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _external(value: object) -> Any:
    from ade.server.wire_format import external  # needed only for JSON

    return external(value)


def aligned(head: Sequence[str], rows: Sequence[Row]) -> Iterable[str]:
    """Yield a table as lines of text; the last column is not padded."""
    texts = [[printable(text_of(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    for row in [head, *texts]:
        padded = [text.ljust(width) for text, width in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*padded, row[-1]]).rstrip()


def text_of(cell: str | Cell) -> str:
    """Return the text of a cell, without its style."""
    return cell.text if isinstance(cell, Cell) else cell


class CommandOutput:
    """Writes the output of one command in the chosen format."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal and the output is not JSON."""
        return not self.as_json and sys.stdout.isatty()

    @property
    def shows_progress(self) -> bool:
        """Whether to show progress on stderr."""
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
        """Print a line with Click styles, which are removed when writing to a pipe."""
        click.secho(printable(text, lines=True), **style)

    def note(self, text: str) -> None:
        """Print a status message to stderr, unless --quiet or --json is set."""
        if not self.quiet and not self.as_json:
            click.echo(printable(text, lines=True), err=True)

    def table(self, head: Sequence[str], rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
        """Print a table. `spare` names the columns to drop on a narrow terminal, first one first."""
        if not rows:
            return
        if self.is_terminal:
            from ade.cli.terminal import draw_table

            draw_table(head, rows, spare)
        else:
            for line in aligned([title.upper() for title in head], rows):
                click.echo(line)

    def facts(self, pairs: Iterable[tuple[str, str | Cell]]) -> None:
        """Print names and values, one pair per line."""
        known = [(name, value) for name, value in pairs if text_of(value)]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            label = click.style(name.ljust(width), dim=True) if self.is_terminal else name.ljust(width)
            click.echo(f"{label}  {printable(text_of(value), lines=True)}")


T = TypeVar("T")
_LARGEST = 500  # maximum page size


async def all_of(api: "Client", listing: Callable[..., Call[Page[T]]], **filters: Any) -> list[T]:
    """Return all items of a paginated list: `await all_of(api, api.list_queues)`."""
    return [item async for item in api.every(listing, limit=_LARGEST, **filters)]


async def first_page(
    listing: Callable[..., Call[Page[T]]],
    *path: str,
    limit: int,
    cursor: str | None = None,
    largest: int = _LARGEST,
    **filters: Any,
) -> Page[T]:
    """Return the first `limit` items and the next cursor; `largest` is the maximum page size."""
    found: list[T] = []
    while True:
        page = await listing(*path, limit=min(limit - len(found), largest), cursor=cursor, **filters)
        found += page.items
        cursor = page.next
        if cursor is None or len(found) >= limit:
            return Page(items=found, next=cursor)
