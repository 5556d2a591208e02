"""Stores of every version, made by its own code: reading never changes them, and an upgrade keeps everything."""

import gzip
import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import apsw
import pytest

from ade.errors import DiskFull, StoreTooOld
from ade.settings import Settings
from ade.stores.sqlite.connection import connect
from tests.domain import ExitCode, TaskQuery, migrations, open_read_only, open_stores, upgrade_store
from tests.stores.upgrades.fixture_contents import check_contents

HERE = Path(__file__).parent
NEWEST = len(migrations())
VERSIONS = sorted(int(path.name.split("-")[1].split(".")[0]) for path in HERE.glob("sqlite-*.sql.gz"))
OLD = [version for version in VERSIONS if version < NEWEST]


def load(version: int, path: Path) -> str:
    """Create the database of a fixture. Returns its URL."""
    connection = apsw.Connection(str(path))
    connection.execute(gzip.decompress((HERE / f"sqlite-{version}.sql.gz").read_bytes()).decode()).fetchall()
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.close()
    return f"sqlite:///{path}"


def columns_and_indexes(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Describe the tables of a database, whatever way they came about."""
    connection = apsw.Connection(str(path))
    found = {}
    objects: list[Any] = connection.execute("SELECT type, name FROM sqlite_schema").fetchall()
    for kind, name in objects:
        pragma = {"table": "table_xinfo", "index": "index_xinfo"}.get(kind)
        if pragma is not None and not name.startswith("sqlite_"):
            found[f"{kind} {name}"] = connection.execute(f"SELECT * FROM pragma_{pragma}('{name}')").fetchall()
    connection.close()
    return found


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `ade` with these arguments."""
    return subprocess.run([sys.executable, "-m", "ade.cli", *arguments], check=False, capture_output=True, text=True)


def rows(path: Path) -> dict[str, int]:
    """Count the rows of the tables that an upgrade must not change."""
    connection = apsw.Connection(str(path))
    tables = ["task", "task_detail", "task_outcome", "dependency", "event", "schedule", "effect", "queue", "tally"]
    counted: dict[str, Any] = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables
    }
    connection.close()
    return counted


def test_every_older_version_but_one_has_a_fixture() -> None:
    assert [version for version in range(1, NEWEST) if version != 5] == OLD  # 5 and 6 came together


@pytest.mark.parametrize("version", OLD)
async def test_reading_an_old_store_says_what_to_do_and_changes_nothing(version: int, tmp_path: Path) -> None:
    url = load(version, tmp_path / "ade.db")
    before = (tmp_path / "ade.db").read_bytes()

    with pytest.raises(StoreTooOld, match="ade upgrade"):
        open_read_only(url, Settings())
    with pytest.raises(StoreTooOld, match="ade upgrade"):
        await open_stores(url)
    told = command("tasks", "--store", url)

    assert told.returncode == ExitCode.STORE
    assert "ade upgrade" in told.stderr
    assert (tmp_path / "ade.db").read_bytes() == before


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_upgraded_store_has_everything_and_works(version: int, tmp_path: Path) -> None:
    path = tmp_path / "ade.db"
    url = load(version, path)
    before = rows(path)

    done = await upgrade_store(url, Settings())

    assert (done.before, done.after) == (version, NEWEST)
    assert rows(path) == before
    connect(tmp_path / "new.db").close()
    assert columns_and_indexes(path) == columns_and_indexes(tmp_path / "new.db")
    stores = await open_stores(url)
    try:
        await check_contents(stores, version)
        assert len(await stores.events.read(0, 1_000)) == before["event"]
    finally:
        await stores.close()


@pytest.mark.parametrize("version", OLD)
async def test_an_upgrade_makes_a_copy_that_the_old_version_can_use(version: int, tmp_path: Path) -> None:
    path = tmp_path / "ade.db"
    url = load(version, path)
    tables, counted = columns_and_indexes(path), rows(path)

    done = await upgrade_store(url, Settings())

    assert done.copy is not None
    copy = Path(done.copy)
    assert copy.parent == tmp_path
    assert apsw.Connection(str(copy)).pragma("user_version") == version
    assert (columns_and_indexes(copy), rows(copy)) == (tables, counted)


async def test_an_upgrade_without_room_for_the_copy_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = load(OLD[0], tmp_path / "ade.db")
    monkeypatch.setattr("ade.stores.sqlite.maintenance.free_bytes", lambda folder: 1)
    tables = columns_and_indexes(tmp_path / "ade.db")

    with pytest.raises(DiskFull, match="--copy"):
        await upgrade_store(url, Settings())

    assert columns_and_indexes(tmp_path / "ade.db") == tables
    assert [file.name for file in tmp_path.iterdir() if "schema" in file.name] == []


async def test_an_upgraded_store_is_not_upgraded_again(tmp_path: Path) -> None:
    url = load(OLD[-1], tmp_path / "ade.db")
    await upgrade_store(url, Settings())

    again = await upgrade_store(url, Settings())

    assert (again.before, again.after, again.copy) == (NEWEST, NEWEST, None)


async def test_labels_of_tasks_are_found_after_an_upgrade(tmp_path: Path) -> None:
    url = load(1, tmp_path / "ade.db")
    old = apsw.Connection(str(tmp_path / "ade.db"))
    detail = "json_set(json(detail), '$.team', 'support', '$.ticket_ref', 'OPS-7')"
    old.execute(f"UPDATE task_detail SET detail = {detail} WHERE seq = 4").fetchall()
    old.close()

    await upgrade_store(url, Settings())

    stores = await open_stores(url)
    for query in (TaskQuery(team="support"), TaskQuery(ticket_ref="OPS-7")):
        assert len((await stores.tasks.find(query)).tasks) == 1
    await stores.close()


def test_a_setting_lets_a_worker_upgrade_the_store(tmp_path: Path) -> None:
    url = load(OLD[0], tmp_path / "ade.db")
    line = ("worker", "--app", "ade.demo:ade", "--store", url)

    refused = command(*line)
    assert refused.returncode == ExitCode.STORE
    assert "ade upgrade" in refused.stderr
    worker = subprocess.Popen(
        [sys.executable, "-m", "ade.cli", *line],
        env={**os.environ, "ADE_STORE__UPGRADE": "true"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        said = list(takewhile(lambda line: "worker.started" not in line, worker.stderr))
        assert any("store.upgraded" in line and str(tmp_path / "ade.db.schema") in line for line in said)
    finally:
        worker.kill()
        worker.wait()
        if worker.stderr is not None:
            worker.stderr.close()
    assert apsw.Connection(str(tmp_path / "ade.db")).pragma("user_version") == NEWEST


def test_a_worker_whose_store_was_upgraded_stops_with_an_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ade.db'}"
    worker = subprocess.Popen(
        [sys.executable, "-m", "ade.cli", "worker", "--app", "ade.demo:ade", "--store", url],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        assert any("worker.started" in said for said in worker.stderr)
        newer = apsw.Connection(str(tmp_path / "ade.db"))
        newer.set_busy_timeout(5_000)
        newer.pragma("user_version", NEWEST + 1)
        newer.close()
        told = worker.stderr.read()
        assert worker.wait(30) == ExitCode.STORE
        assert "error[store_too_new]" in told
    finally:
        worker.kill()
        worker.wait()
        if worker.stderr is not None:
            worker.stderr.close()


def test_the_command_names_both_versions_and_the_copy(tmp_path: Path) -> None:
    url = load(OLD[0], tmp_path / "ade.db")

    told = command("upgrade", "--store", url, "--copy", str(tmp_path / "before.db"))

    assert told.returncode == ExitCode.OK
    assert f"from schema {OLD[0]} to {NEWEST}" in told.stdout
    assert str(tmp_path / "before.db") in told.stdout
