"""The form that all generated tables have."""

from collections.abc import Callable, Iterable, Sequence

Block = Callable[[], str]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "-"


def _cell(text: str) -> str:
    """A line end or a bar would end the cell, and a word in angle brackets would vanish as a tag."""
    bounded = text.replace("\n", " ").replace("|", "\\|")
    return bounded if "`" in text else bounded.replace("<", "&lt;")
