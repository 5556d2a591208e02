"""What may be opened and what is refused, with nothing changed. Only here, because only this store is a file."""

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path

import apsw
import pytest

from ade.errors import StoreCorrupt, StoreError, StoreForeign, StoreReadOnly, StoreTooNew, StoreUnsupported
from ade.stores.sqlite.connection import APPLICATION_ID, connect, migrations
from ade.stores.sqlite.tasks import SqliteTasks
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import Agent, AgentStatus, ClaimRequest, StoreSettings, TaskQuery, open_sqlite
from tests.stores.sqlite.conftest import OpenStore


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}


async def test_a_database_of_a_newer_version_is_refused_untouched(open_store: OpenStore, path: Path) -> None:
    connection = connect(path)
    connection.pragma("user_version", len(migrations()) + 1)
    connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    connection.close()
    before = content(path)

    with pytest.raises(StoreTooNew, match="Upgrade ADE"):
        await open_store()

    assert content(path) == before


@pytest.mark.parametrize("mark", ["PRAGMA user_version = 3", "PRAGMA application_id = 77", "CREATE TABLE mine (a)"])
async def test_a_database_of_another_program_is_refused_untouched(open_store: OpenStore, path: Path, mark: str) -> None:
    other = sqlite3.connect(path)
    other.execute(mark)
    other.commit()
    other.close()
    before = content(path)

    with pytest.raises(StoreForeign):
        await open_store()

    assert content(path) == before
    assert not path.with_name("ade.db.hints").exists()


async def test_an_empty_file_becomes_a_database(open_store: OpenStore, path: Path) -> None:
    path.touch()

    stores = await open_store()

    assert (await stores.maintenance.health()).facts["schema"] == len(migrations())


async def test_folders_are_made_as_needed(tmp_path: Path) -> None:
    stores = await open_sqlite(f"sqlite:///{tmp_path / 'a' / 'b' / 'ade.db'}", StoreSettings(ballast_mb=0))
    await stores.close()

    assert (tmp_path / "a" / "b" / "ade.db").exists()


async def test_a_folder_is_no_database(open_store: OpenStore, path: Path) -> None:
    path.mkdir()

    with pytest.raises(StoreUnsupported, match="is a folder"):
        await open_store()


async def test_a_file_where_the_folder_should_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="folder"):
        await open_sqlite(f"sqlite:///{tmp_path / 'file' / 'ade.db'}", StoreSettings())


async def test_many_may_open_a_new_database_at_once(open_store: OpenStore, clock: TestClock) -> None:
    opened = await asyncio.gather(*(open_store(clock) for _ in range(6)))
    for stores in opened:
        await Scene(stores, clock).add()

    assert await Scene(opened[0], clock).counts() == {"pending": 6}


async def test_garbage_is_refused_as_damaged(open_store: OpenStore, path: Path) -> None:
    path.write_bytes(b"this is not a database, " * 1000)
    before = content(path)

    with pytest.raises(StoreCorrupt, match="backup"):
        await open_store()

    assert content(path) == before


async def _filled(open_store: OpenStore, clock: TestClock) -> None:
    stores = await open_store(clock)
    await Scene(stores, clock).add_many(2000, description="x" * 200)
    await stores.close()


async def test_a_damaged_page_is_reported_and_nothing_hides_it(
    open_store: OpenStore, path: Path, clock: TestClock
) -> None:
    await _filled(open_store, clock)
    with path.open("r+b") as file:
        for page in range(3, path.stat().st_size // 4096, 2):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)

    async def use() -> None:
        stores = await open_store(clock)
        await Scene(stores, clock).run(2000)

    with pytest.raises(StoreCorrupt, match="backup"):
        await use()


async def test_the_doctor_sees_a_damaged_page(open_store: OpenStore, path: Path, clock: TestClock) -> None:
    await _filled(open_store, clock)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 4096)
        file.write(b"\xa5" * 4096)

    health = await (await open_store(clock)).maintenance.health()

    assert any("damaged" in warning for warning in health.warnings)


async def test_a_file_cut_short_is_refused_as_damaged(open_store: OpenStore, path: Path, clock: TestClock) -> None:
    await _filled(open_store, clock)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)

    async def use() -> None:
        await Scene(await open_store(clock), clock).run(2000)

    with pytest.raises(StoreCorrupt):
        await use()


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write what is read-only; test_faults.py tries it on a read-only file system"
)
@pytest.mark.parametrize("what", ["file", "folder"])
async def test_what_cannot_be_written_is_refused(open_store: OpenStore, path: Path, what: str) -> None:
    stores = await open_store()
    await stores.close()
    target = path if what == "file" else path.parent
    mode = target.stat().st_mode
    target.chmod(0o444 if what == "file" else 0o555)
    try:
        with pytest.raises(StoreReadOnly):
            await open_store()
    finally:
        target.chmod(mode)


async def test_the_settings_that_keep_data_safe_are_in_force(open_store: OpenStore, clock: TestClock) -> None:
    stores = await open_store(clock)
    assert isinstance(stores.tasks, SqliteTasks)
    pragmas = ("journal_mode", "synchronous", "mmap_size", "trusted_schema", "application_id", "wal_autocheckpoint")

    async def in_force(call: object) -> dict[str, object]:
        answers: dict[str, object] = await call(lambda c: {name: c.pragma(name) for name in pragmas})  # type: ignore[operator]  # a bound method
        return answers

    writing = await in_force(stores.tasks._writer.call)
    reading = await in_force(stores.tasks._readers.call)

    assert writing["journal_mode"] == reading["journal_mode"] == "wal"
    assert writing["synchronous"] == 2  # FULL
    assert writing["mmap_size"] == reading["mmap_size"] == 0
    assert writing["trusted_schema"] == 0
    assert writing["application_id"] == APPLICATION_ID


async def test_who_reads_cannot_write(open_store: OpenStore) -> None:
    stores = await open_store()
    assert isinstance(stores.tasks, SqliteTasks)

    with pytest.raises(StoreReadOnly):
        await stores.tasks._readers.call(lambda c: c.execute("DELETE FROM task").fetchall())


async def test_a_store_opens_again_as_it_was_left(open_store: OpenStore, clock: TestClock) -> None:
    first = await open_store(clock)
    task = await Scene(first, clock).add()
    await first.close()
    await first.close()

    again = Scene(await open_store(clock), clock)

    assert await again.get(task.id) == task


async def test_a_copy_without_its_log_is_whole_if_the_store_was_closed(
    open_store: OpenStore, path: Path, clock: TestClock, tmp_path: Path
) -> None:
    stores = await open_store(clock)
    await Scene(stores, clock).add_many(10)
    await stores.close()
    shutil.copy(path, tmp_path / "copy.db")

    rows = apsw.Connection(str(tmp_path / "copy.db")).execute("SELECT count(*) FROM task").fetchall()

    assert rows == [(10,)]


async def test_tasks_and_agents_of_an_earlier_version_are_there_as_before(open_store: OpenStore, path: Path) -> None:
    """Before there were capabilities."""
    before = next(number for number, text in enumerate(migrations()) if "capabilities" in text)
    old = apsw.Connection(str(path))
    for text in migrations()[:before]:
        old.execute(text).fetchall()
    old.execute("INSERT INTO agent VALUES ('coder', 3, 'draining', 1, 2)").fetchall()
    columns = "id, queue, name, status, stage, priority, run_after, created_at, updated_at"
    task_id = "0199c82c-c000-7000-8000-000000000000"
    values = f"('{task_id}', 'default', 'send', 'pending', 'ready', 5, 0, 1, 1)"
    old.execute(f"INSERT INTO task ({columns}) VALUES {values}").fetchall()
    detail = (
        '{"team":"support","ticket_ref":"OPS-7","author_id":"ann","tags":["a","b"],"resources":["db:main"],'
        '"locks":[{"resource":"db:other","mode":"exclusive"},{"resource":"db:main","mode":"shared"}]}'
    )
    old.execute("INSERT INTO task_detail VALUES (1, ?), (2, '{not JSON')", (detail,)).fetchall()
    old.execute("INSERT INTO tally VALUES ('default', 'send', 'pending', 1)").fetchall()
    old.pragma("application_id", APPLICATION_ID)
    old.pragma("user_version", before)
    old.close()

    stores = await open_store()

    [use] = await stores.agents.list_agents()
    assert use.agent == Agent(id="coder", max_tasks=3, status=AgentStatus.DRAINING, registered_at=1, seen_until=2)
    request = ClaimRequest(worker_id="w1", run_ids=["r" * 32], names=frozenset({"send"}))
    assert [(task.id, task.needs) for task in await stores.tasks.claim(request)] == [(task_id, ())]
    labels = [TaskQuery(team="support"), TaskQuery(ticket_ref="OPS-7"), TaskQuery(author_id="ann"), TaskQuery(tag="b")]
    for query in (*labels, TaskQuery(resource="db:main"), TaskQuery(resource="db:other")):
        assert [task.id for task in (await stores.tasks.find(query)).tasks] == [task_id]
