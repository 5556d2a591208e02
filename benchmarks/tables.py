"""Markdown tables."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns line up in the source too; the first column left, the others as they come."""
    lines = [[_escape(cell) for cell in row] for row in (header, *rows)]
    if any(len(line) != len(header) for line in lines):
        raise ValueError("every row needs as many cells as the header")
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    ruler = ["-" * max(3, width) for width in widths]
    return "\n".join(_row(line, widths) for line in (lines[0], ruler, *lines[1:]))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(max(3, width)) for cell, width in zip(cells, widths, strict=True)]
    return f"| {' | '.join(padded)} |"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
