"""Every statement has one name, is used, and every name in the code has a statement."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ade.stores import sqlite
from ade.stores.sql_files import SqlFile, parse_statements
from ade.stores.sqlite.connection import sql

STORE = Path(sqlite.__file__).parent
FILES = sorted((STORE / "sql").glob("*.sql"))
EXECUTE = {"run": 1, "value": 1, "read_records": 1, "sql": 0}  # functions that take a name, and which argument it is


def written() -> dict[str, str]:
    return {name: path.stem for path in FILES for name in SqlFile(path)}


def used() -> Iterator[str]:
    """Names that the code gives to a function which executes them, and all others that look like one."""
    tables = {path.stem for path in FILES}
    for path in STORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXECUTE:
                arguments = node.args[EXECUTE[node.func.id] :]
                if arguments and isinstance(arguments[0], ast.Constant):
                    yield str(arguments[0].value)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                table, dot, name = node.value.partition(".")
                if dot and table in tables and name.isidentifier():
                    yield node.value


def test_every_statement_is_used_and_every_used_one_exists() -> None:
    assert set(used()) == set(written())


def test_a_name_begins_with_the_file_it_is_in() -> None:
    assert [name for name, table in written().items() if name.partition(".")[0] != table] == []


def test_a_statement_is_found_by_its_name_without_its_comment() -> None:
    assert sql("meta.get") == "SELECT value FROM meta WHERE key = :key"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("locks.gett", 'locks.sql contains no statement named "locks.gett"'),
        ("lock.get", r"sql/lock\.sql does not exist"),
    ],
)
def test_an_unknown_name_is_reported(name: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        sql(name)


def test_two_statements_with_one_name_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "twice.sql"
    path.write_text("-- name: twice.get\n-- One.\nSELECT 1\n\n-- name: twice.get\n-- Two.\nSELECT 2\n")

    with pytest.raises(ValueError, match=r'two statements named "twice\.get"'):
        SqlFile(path)


def test_a_comment_and_a_statement_can_have_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "some.sql"
    get = "-- name: some.get\n-- One\n-- sentence.\nSELECT 1\n -- inside\n FROM t\n"
    path.write_text(f"-- The file.\n\n{get}\n-- name: b\nSELECT 2\n")

    assert list(parse_statements(path)) == [
        ("some.get", "One sentence.", "SELECT 1\n -- inside\n FROM t"),
        ("b", "", "SELECT 2"),
    ]
