"""SQL is SQL: one statement per file, loaded when first used."""

from functools import cache
from pathlib import Path
from typing import Any

import apsw

_PACKAGE = Path(__file__).parent  # importlib.resources would double the time it takes to load this room


@cache
def sql(name: str) -> str:
    """The statement in sql/<name>.sql."""
    return (_PACKAGE / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@cache
def migrations() -> tuple[str, ...]:
    """The migrations in their order; the version of a database is how many of them it has seen."""
    folder = _PACKAGE / "migrations"
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".sql"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


def run(connection: apsw.Connection, statement: str, /, **bindings: Any) -> list[Any]:
    """Carry out the statement and return all its rows (always drained, so that a commit can follow)."""
    return connection.execute(sql(statement), bindings).fetchall()


def value(connection: apsw.Connection, statement: str, /, **bindings: Any) -> Any:
    """The first column of the first row, or None."""
    rows = run(connection, statement, **bindings)
    return rows[0][0] if rows else None
