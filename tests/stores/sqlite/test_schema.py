"""The schema: one text to read, the same as the migrations make, and the same words as the core."""

import re
from pathlib import Path

import apsw

from ade import Status, Task
from ade.stores import sqlite
from ade.stores.sql_files import NamedStatement, SqlFile, parse_statements
from ade.stores.sqlite.codec import COLUMN_FIELDS, DETAIL_FIELDS, OUTCOME_FIELDS, PROGRESS_FIELDS
from ade.stores.sqlite.connection import connect
from ade.stores.sqlite.maintenance import INVARIANTS
from ade.stores.sqlite.schema import APPLICATION_ID, migrations
from tests.domain import CLAIMABLE, FINAL

STORE = Path(sqlite.__file__).parent
SCHEMA = (STORE / "schema.sql").read_text(encoding="utf-8")


def statements() -> list[NamedStatement]:
    return [found for path in sorted((STORE / "sql").glob("*.sql")) for found in parse_statements(path)]


def objects(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name").fetchall()
    return [(str(kind), str(name), _on_one_line(str(text))) for kind, name, text in rows]


def _on_one_line(text: str) -> str:
    return re.sub(r" (?=[,)])", "", " ".join(text.split()))


def test_migrations_lead_to_the_schema_as_it_is_written_down() -> None:
    written = apsw.Connection(":memory:")
    written.execute(SCHEMA).fetchall()

    assert objects(connect(None)) == objects(written)


def test_a_database_tells_whose_it_is_and_how_old() -> None:
    connection = connect(None)

    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == len(migrations())


def test_the_database_knows_the_statuses_of_the_core() -> None:
    [listed] = re.findall(r"status NOT IN \((.*?)\)", SqlFile(INVARIANTS)["statuses_are_known"], re.DOTALL)
    [claimable] = re.findall(r"CHECK \(\(stage IS NOT NULL\) = \(status IN \((.*?)\)\)\)", SCHEMA)

    assert re.findall(r"'(\w+)'", listed) == list(Status)
    assert set(re.findall(r"'(\w+)'", claimable)) == CLAIMABLE


def test_statements_that_list_final_statuses_list_them_all() -> None:
    lists = [
        (name, frozenset(re.findall(r"'(\w+)'", found)))
        for name, _, text in [*statements(), *parse_statements(INVARIANTS)]
        for found in re.findall(r"status (?:NOT )?IN \(([^()]*'completed'[^()]*)\)", text)
    ]

    assert len(lists) >= 4
    assert [name for name, statuses in lists if statuses not in (FINAL, frozenset(Status))] == []


def test_every_field_of_a_task_lies_in_one_place() -> None:
    places = COLUMN_FIELDS + OUTCOME_FIELDS + PROGRESS_FIELDS + DETAIL_FIELDS

    assert sorted(places) == sorted(Task.__struct_fields__)


def test_every_statement_is_one_statement_with_a_word_on_what_it_is_for() -> None:
    connection = connect(None)
    for name, comment, text in statements():
        assert comment, name
        assert ";" not in text, name
        if name not in ("tasks.find", "tasks.end_of_window"):  # task_reader.py fills them in
            connection.execute(f"EXPLAIN {text}", dict.fromkeys(re.findall(r":([a-z_]+)", text))).fetchall()
