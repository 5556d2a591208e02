"""The schema: one text to read, the same as the migrations make, and the same words as the core."""

import re
from importlib.resources import files

import apsw

from ade.stores.sqlite.codec import COLUMN_FIELDS, DETAIL_FIELDS, OUTCOME_FIELDS, PROGRESS_FIELDS
from ade.stores.sqlite.connection import APPLICATION_ID, connect, migrations, sql
from ade.tasks.lifecycle import CLAIMABLE, FINAL, Status
from ade.tasks.model import Task

SCHEMA = (files("ade.stores.sqlite") / "schema.sql").read_text(encoding="utf-8")
SQL = files("ade.stores.sqlite") / "sql"


def objects(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name").fetchall()
    return [(str(kind), str(name), " ".join(str(text).split())) for kind, name, text in rows]


def test_migrations_lead_to_the_schema_as_it_is_written_down() -> None:
    written = apsw.Connection(":memory:")
    written.execute(SCHEMA).fetchall()

    assert objects(connect(None)) == objects(written)


def test_a_database_tells_whose_it_is_and_how_old() -> None:
    connection = connect(None)

    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == len(migrations())


def test_the_database_knows_the_statuses_of_the_core() -> None:
    [listed] = re.findall(r"status NOT IN \((.*?)\)", sql("invariants/statuses_are_known"), re.DOTALL)
    [claimable] = re.findall(r"CHECK \(\(stage IS NOT NULL\) = \(status IN \((.*?)\)\)\)", SCHEMA)

    assert re.findall(r"'(\w+)'", listed) == list(Status)
    assert set(re.findall(r"'(\w+)'", claimable)) == CLAIMABLE


def test_statements_that_list_final_statuses_list_them_all() -> None:
    lists = [
        (path.name, frozenset(re.findall(r"'(\w+)'", found)))
        for path in [*SQL.iterdir(), *(SQL / "invariants").iterdir()]
        if path.name.endswith(".sql")
        for found in re.findall(r"status (?:NOT )?IN \(([^()]*'completed'[^()]*)\)", path.read_text(encoding="utf-8"))
    ]

    assert len(lists) >= 4
    assert [name for name, statuses in lists if statuses not in (FINAL, frozenset(Status))] == []


def test_every_field_of_a_task_lies_in_one_place() -> None:
    places = COLUMN_FIELDS + OUTCOME_FIELDS + PROGRESS_FIELDS + DETAIL_FIELDS

    assert sorted(places) == sorted(Task.__struct_fields__)


def test_every_statement_is_one_statement_with_a_word_on_what_it_is_for() -> None:
    connection = connect(None)
    for path in SQL.iterdir():
        if path.name.endswith(".sql") and path.name != "find.sql":
            text = path.read_text(encoding="utf-8")
            assert text.startswith("-- "), path.name
            assert ";" not in re.sub(r"--.*", "", text), path.name
            connection.execute(f"EXPLAIN {text}", dict.fromkeys(re.findall(r":([a-z_]+)", text))).fetchall()
