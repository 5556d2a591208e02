"""Parses the .sql files of a store into named SQL statements.

A file contains the statements of one table, or of tables that are used together. A statement ends where the next one
begins:

    -- name: locks.get
    -- Get one request of a namespace.
    SELECT request FROM lock_request WHERE id = :id AND namespace = :namespace
"""

from collections.abc import Iterator
from pathlib import Path

_NAME = "-- name: "
NamedStatement = tuple[str, str, str]  # name, comment, text


class SqlFile:
    """The statements of one file by name, without comments, because SQLite hashes the text at every execution."""

    __slots__ = ("_path", "_texts")

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ValueError if two statements have the same name."""
        self._path = path
        self._texts: dict[str, str] = {}
        for name, _, text in parse_statements(path):
            if name in self._texts:
                raise ValueError(f'{path} contains two statements named "{name}".')
            self._texts[name] = text

    def __getitem__(self, name: str) -> str:
        """Return the text of a statement. Raises LookupError if the file does not contain it."""
        try:
            return self._texts[name]
        except KeyError:
            raise LookupError(f'{self._path} contains no statement named "{name}".') from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


def parse_statements(path: Path) -> Iterator[NamedStatement]:
    """Iterate over the statements of a file in order. Text before the first name describes the file."""
    for part in f"\n{path.read_text(encoding='utf-8')}".split(f"\n{_NAME}")[1:]:
        name, _, rest = part.partition("\n")
        start = 0
        while rest.startswith("--", start):
            start = rest.index("\n", start) + 1
        comment = " ".join(line.removeprefix("--").strip() for line in rest[:start].splitlines())
        yield name.strip(), comment, rest[start:].rstrip()
