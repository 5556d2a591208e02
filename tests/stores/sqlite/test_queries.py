"""A store opened read-only: what it shows, and that it changes nothing."""

import os
from pathlib import Path

import apsw
import pytest
from msgspec import Raw

from ade.errors import StoreError, StoreForeign, StoreReadOnly, StoreTooNew, StoreTooOld
from ade.stores.sqlite.read_only_store import open_read_only_store
from tests.domain import DocumentWrite, StoreSettings, TaskQuery, open_sqlite
from tests.tasks.factories import new_task


async def kept(folder: Path) -> str:
    url = f"sqlite:///{folder / 'ade.db'}"
    stores = await open_sqlite(url, StoreSettings(ballast_mb=0))
    await stores.tasks.add([new_task(id="seen")])
    await stores.close()
    return url


async def test_it_shows_the_same_tasks_as_the_store_itself(tmp_path: Path) -> None:
    look = open_read_only_store(await kept(tmp_path))
    assert look is not None

    page = await look.tasks.find(TaskQuery())

    assert [task.id for task in page.tasks] == ["seen"]
    assert abs(look.clock.steady() - look.clock.now()) < 60_000
    await look.close()


async def test_it_shows_documents(tmp_path: Path) -> None:
    url = await kept(tmp_path)
    stores = await open_sqlite(url, StoreSettings(ballast_mb=0))
    await stores.documents.write([DocumentWrite(kind="user", id="ada", body=Raw(b"{}"))])
    await stores.close()
    look = open_read_only_store(url)
    assert look is not None

    with pytest.raises(StopIteration) as fetched:
        look.documents.fetch("user", ["bob", "ada"]).send(None)
    with pytest.raises(StopIteration) as listed:
        look.documents.list_documents("user").send(None)

    [nobody, ada] = fetched.value.value
    assert (nobody, ada.id, listed.value.value) == (None, "ada", [ada])
    with pytest.raises(StoreReadOnly):
        await look.documents.write([DocumentWrite(kind="user", id="ada", seen=1)])
    await look.close()


async def test_it_refuses_to_write(tmp_path: Path) -> None:
    look = open_read_only_store(await kept(tmp_path))
    assert look is not None

    with pytest.raises(StoreReadOnly, match="opened read-only"):
        await look.tasks.add([new_task(id="never")])
    await look.close()


async def test_it_sees_what_is_written_after_it_was_opened(tmp_path: Path) -> None:
    url = await kept(tmp_path)
    look = open_read_only_store(url)
    assert look is not None
    stores = await open_sqlite(url, StoreSettings(ballast_mb=0))
    await stores.tasks.add([new_task(id="later")])

    page = await look.tasks.find(TaskQuery())

    assert [task.id for task in page.tasks] == ["later", "seen"]
    await look.close()
    await stores.close()


async def test_after_a_reboot_the_first_opening_is_a_full_one(tmp_path: Path) -> None:
    url = await kept(tmp_path)
    connection = apsw.Connection(str(tmp_path / "ade.db"))
    connection.execute("UPDATE meta SET value = 'an earlier one' WHERE key = 'boot_id'")
    connection.close()

    assert open_read_only_store(url) is None


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("PRAGMA user_version = 1", StoreTooOld),
        ("PRAGMA user_version = 999", StoreTooNew),
        ("PRAGMA application_id = 7", StoreForeign),
    ],
)
async def test_reading_a_store_of_another_version_changes_nothing(
    tmp_path: Path, statement: str, error: type[StoreError]
) -> None:
    url, path = await kept(tmp_path), tmp_path / "ade.db"
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    before = path.read_bytes()

    with pytest.raises(error):
        open_read_only_store(url)

    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_left_to_the_full_opening(tmp_path: Path) -> None:
    (tmp_path / "ade.db").write_bytes(os.urandom(8192))

    assert open_read_only_store(f"sqlite:///{tmp_path / 'ade.db'}") is None
