"""The files over time: a log that grows behind a reader, copies made while work goes on, blobs."""

import asyncio
import logging
import os
import resource
from pathlib import Path

import apsw
import pytest

from ade.errors import StoreCorrupt, StoreError, StoreReadOnly, StoreUnavailable
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import Stores, StoreSettings, open_sqlite
from tests.stores.sqlite.conftest import OpenStore

MEGABYTE = 1 << 20


async def write_much(scene: Scene, megabytes: int) -> None:
    for _ in range(megabytes):
        await scene.add_many(10, description="x" * 100_000)


async def test_a_long_reader_raises_an_alarm_and_stops_nobody(
    open_store: OpenStore, path: Path, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    stores = await open_store(clock, wal_alarm_mb=5)
    scene = Scene(stores, clock)
    wal = path.with_name("ade.db-wal")
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM task").fetchall()
    await write_much(scene, 6)

    with caplog.at_level(logging.WARNING, logger="ade.store"):
        await stores.maintenance.checkpoint()

    assert wal.stat().st_size > 5 * MEGABYTE
    assert "store_needs_attention" in caplog.text
    [warning] = (await stores.maintenance.health()).warnings
    assert "holds a read transaction open" in warning
    await scene.add()

    reader.close()
    await stores.maintenance.checkpoint()

    assert wal.stat().st_size == 0
    assert (await stores.maintenance.health()).warnings == []


async def backed_up(stores: Stores, target: Path) -> list[tuple[int, int]]:
    return [step async for step in stores.maintenance.backup(str(target))]


async def opened_copy(target: Path, clock: TestClock) -> Stores:
    return await open_sqlite(f"sqlite:///{target}", StoreSettings(ballast_mb=0), clock)


async def test_a_backup_made_while_work_goes_on_is_whole_and_ends(
    open_store: OpenStore, path: Path, clock: TestClock, tmp_path: Path
) -> None:
    stores = await open_store(clock)
    scene = Scene(stores, clock)
    await write_much(scene, 20)
    ends = asyncio.Event()

    async def work() -> int:
        rounds = 0
        while not ends.is_set():
            await scene.succeed((await scene.claim())[0])
            await scene.add()
            rounds += 1
        return rounds

    working = asyncio.create_task(work())
    steps = await asyncio.wait_for(backed_up(stores, tmp_path / "copy.db"), 120)
    ends.set()

    assert await working > 1
    assert 1 < len(steps) < 10  # writes in between do not start it anew
    assert steps[-1][0] == steps[-1][1]
    copy = await opened_copy(tmp_path / "copy.db", clock)
    assert await copy.maintenance.check_invariants() == []
    assert (await copy.maintenance.health()).facts["quick_check"] == "ok"
    assert sum((await Scene(copy, clock).counts()).values()) >= 200
    await copy.close()


async def test_a_backup_has_the_blobs_too(open_store: OpenStore, clock: TestClock, tmp_path: Path) -> None:
    stores = await open_store(clock)
    task = await Scene(stores, clock).add()
    await stores.blobs.put_blob(f"{task.id}.args", b"large")

    (tmp_path / "copies").mkdir()
    await backed_up(stores, tmp_path / "copies" / "copy.db")

    copy = await opened_copy(tmp_path / "copies" / "copy.db", clock)
    assert await copy.blobs.get_blob(f"{task.id}.args") == b"large"
    await copy.close()


async def test_a_backup_never_overwrites(open_store: OpenStore, tmp_path: Path) -> None:
    stores = await open_store()
    (tmp_path / "precious").write_text("mine")

    with pytest.raises(StoreError, match="exists already"):
        await backed_up(stores, tmp_path / "precious")
    with pytest.raises(StoreReadOnly, match="does not exist"):
        await backed_up(stores, tmp_path / "nowhere" / "copy.db")

    assert (tmp_path / "precious").read_text() == "mine"


async def test_a_backup_that_is_given_up_leaves_no_copy(
    open_store: OpenStore, clock: TestClock, tmp_path: Path
) -> None:
    stores = await open_store(clock)
    await write_much(Scene(stores, clock), 6)
    steps = stores.maintenance.backup(str(tmp_path / "copy.db"))
    await anext(steps)

    await steps.aclose()  # type: ignore[attr-defined]  # it is a generator

    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("copy")] == []


async def test_a_store_in_memory_has_nothing_to_back_up(tmp_path: Path) -> None:
    stores = await open_sqlite("memory://", StoreSettings())

    with pytest.raises(StoreError, match="nothing to back up"):
        await backed_up(stores, tmp_path / "copy.db")
    await stores.close()


BLOB = "01890a5d-ac96-774b-bcce-b302099a8057.args"


def blob_file(path: Path) -> Path:
    [file] = path.with_name("ade.db.blobs").rglob(BLOB)
    return file


async def test_a_blob_that_changed_is_found_out(open_store: OpenStore, path: Path) -> None:
    stores = await open_store()
    await stores.blobs.put_blob(BLOB, b"original")
    file = blob_file(path)
    file.write_bytes(file.read_bytes().replace(b"orig", b"evil"))

    with pytest.raises(StoreCorrupt, match="digest"):
        await stores.blobs.get_blob(BLOB)


async def test_a_blob_that_was_cut_short_or_lost_is_found_out(open_store: OpenStore, path: Path) -> None:
    stores = await open_store()
    await stores.blobs.put_blob(BLOB, b"original")
    blob_file(path).write_bytes(b"short")
    with pytest.raises(StoreCorrupt, match="digest"):
        await stores.blobs.get_blob(BLOB)
    blob_file(path).unlink()
    with pytest.raises(StoreCorrupt, match="missing"):
        await stores.blobs.get_blob(BLOB)


async def test_a_blob_that_cannot_be_written_leaves_nothing_behind(open_store: OpenStore, path: Path) -> None:
    stores = await open_store()
    await stores.blobs.put_blob(BLOB, b"original")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(StoreUnavailable, match="too large"):
            await stores.blobs.put_blob(BLOB, b"x" * (2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [file.name for file in path.with_name("ade.db.blobs").rglob("*") if file.is_file()] == [BLOB]
    assert await stores.blobs.get_blob(BLOB) == b"original"


async def test_a_blob_outlives_the_store_and_lies_where_it_was_wished(open_store: OpenStore, tmp_path: Path) -> None:
    first = await open_store(blob_dir=tmp_path / "elsewhere")
    await first.blobs.put_blob(BLOB, b"large")
    await first.close()

    again = await open_store(blob_dir=tmp_path / "elsewhere")

    assert await again.blobs.get_blob(BLOB) == b"large"
    assert not (tmp_path / "ade.db.blobs").exists()


async def test_half_written_blobs_go_after_a_while_and_foreign_files_stay(
    open_store: OpenStore, path: Path, clock: TestClock
) -> None:
    stores = await open_store(clock)
    task = await Scene(stores, clock).add()
    await stores.blobs.put_blob(f"{task.id}.args", b"large")
    [blob] = path.with_name("ade.db.blobs").rglob(f"{task.id}.args")
    half_written, foreign = blob.with_name(f"{task.id}.args.0a1b2c3d.part"), blob.with_name("notes.txt")
    for file in (half_written, foreign):
        file.touch()
        os.utime(file, (0, 0))

    assert await stores.sweeps.remove_orphans(3_600_000, 100) == 1

    assert sorted(blob.parent.iterdir()) == sorted([blob, foreign])


async def test_a_folder_that_other_databases_may_share_is_not_searched_for_orphans(
    open_store: OpenStore, tmp_path: Path, clock: TestClock
) -> None:
    stores = await open_store(clock, blob_dir=tmp_path / "shared")
    await stores.blobs.put_blob(BLOB, b"of another database")
    clock.advance(10_000)

    assert await stores.sweeps.remove_orphans(3_600_000, 100) == 0
    assert await stores.blobs.get_blob(BLOB) == b"of another database"


async def test_one_blob_written_by_many_at_once_is_whole(open_store: OpenStore, path: Path) -> None:
    stores = await open_store()

    await asyncio.gather(*(stores.blobs.put_blob(BLOB, bytes([n]) * 50_000) for n in range(20)))

    assert len(set(await stores.blobs.get_blob(BLOB))) == 1
    assert [file.name for file in blob_file(path).parent.iterdir()] == [BLOB]
