"""The file goes away or becomes another one while it is in use: a clear error, never a new and empty database."""

import asyncio
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import apsw
import msgspec
import pytest

from ade.composition.stores import StoreLocation, renewer
from ade.errors import DiskFull, QueueFull, StoreMissing, StoreReplaced, StoreTooNew, StoreTooOld, StoreUnavailable
from ade.settings import Settings
from ade.stores.sqlite.connection import connect
from ade.stores.sqlite.file_identity import FileIdentity, _holders_of_other_files, check_other_processes
from ade.stores.sqlite.files import DatabaseFiles
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import Queue, StoreSettings, TaskQuery, Worker, open_sqlite
from tests.stores.sqlite.conftest import OpenStore
from tests.waiting import eventually


async def test_a_removed_file_is_noticed_and_not_made_anew(scene: Scene, path: Path) -> None:
    running = await scene.start()
    path.unlink()

    with pytest.raises(StoreUnavailable, match="removed while in use"):
        await scene.add()
    with pytest.raises(StoreUnavailable, match="removed while in use"):
        await scene.succeed(running)
    with pytest.raises(StoreUnavailable, match="removed while in use"):
        scene.renew(running)
    assert not path.exists()


async def test_a_removed_file_is_not_made_anew_by_who_reads(open_store: OpenStore, path: Path) -> None:
    stores = await open_store()
    path.unlink()

    with pytest.raises(StoreUnavailable, match="removed while in use"):
        await stores.tasks.get(["x"])
    assert not path.exists()


async def test_a_file_that_is_put_back_is_used_again(scene: Scene, path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    with pytest.raises(StoreUnavailable):
        await scene.add()

    path.with_suffix(".away").rename(path)

    await scene.add()


async def test_a_replaced_file_is_noticed_and_not_written(scene: Scene, path: Path) -> None:
    await scene.add()
    other = path.with_name("other.db")
    connect(other).close()
    other.replace(path)
    before = path.read_bytes()

    with pytest.raises(StoreUnavailable, match="replaced while in use"):
        await scene.add()
    with pytest.raises(StoreUnavailable, match="replaced while in use"):
        scene.renew()
    assert path.read_bytes() == before


async def test_a_file_replaced_before_the_first_write_is_noticed_too(
    open_store: OpenStore, path: Path, clock: TestClock
) -> None:
    scene = Scene(await open_store(clock), clock)
    other = path.with_name("other.db")
    shutil.copy(path, other)
    other.replace(path)

    with pytest.raises(StoreUnavailable, match="replaced while in use"):
        await scene.add()


async def until_refused(scene: Scene) -> None:
    """Wait until a write is refused, which takes less than a second."""

    async def is_refused() -> bool:
        try:
            await scene.add()
        except StoreReplaced:
            return True
        return False

    await eventually(is_refused, 5)


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_a_removed_log_is_noticed_by_reads_and_writes(scene: Scene, path: Path, end: str) -> None:
    running = await scene.start()
    path.with_name(path.name + end).unlink()

    await until_refused(scene)
    with pytest.raises(StoreReplaced):
        await scene.stores.tasks.get(["x"])
    for write in (scene.add(), scene.succeed(running)):
        with pytest.raises(StoreReplaced, match="removed or replaced while in use"):
            await write
    with pytest.raises(StoreReplaced):
        scene.renew(running)


async def test_a_file_behind_a_link_is_watched_with_its_log(path: Path, tmp_path: Path, clock: TestClock) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    stores = await open_sqlite(f"sqlite:///{link}", StoreSettings(ballast_mb=0), clock)
    scene = Scene(stores, clock)
    await scene.add()
    path.with_name(path.name + "-wal").unlink()

    await until_refused(scene)
    with pytest.raises(StoreReplaced) as refused:
        await scene.add()
    assert refused.value.code == "store_replaced"
    await stores.close()


async def test_another_program_that_reads_a_backup_keeps_nobody_from_opening_it(scene: Scene, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    async for _ in scene.stores.maintenance.backup(str(backup)):
        pass
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN'); c.execute('SELECT * FROM meta')"
        ".fetchall(); print('reads', flush=True); sys.stdin.read()"
    )
    line = [sys.executable, "-c", program, str(backup)]
    reader = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdin is not None
    reader.stdout.readline()

    check_other_processes(DatabaseFiles(backup))

    reader.communicate()


async def test_a_file_with_the_same_number_on_another_file_system_is_not_taken_for_the_stores_own(
    scene: Scene, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.add()
    stranger = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)

    def holders(inode: int, offset: int) -> set[int]:
        return {stranger.pid} if inode == path.with_name("ade.db-shm").stat().st_ino else set()

    monkeypatch.setattr("ade.stores.sqlite.file_identity._lock_holders", holders)

    assert _holders_of_other_files(DatabaseFiles(path)) == set()

    stranger.communicate()


async def test_no_store_is_created_next_to_the_remains_of_one(open_store: OpenStore, path: Path) -> None:
    await (await open_store()).close()
    path.unlink()

    with pytest.raises(StoreMissing, match=r"ade\.db\.hints"):
        await open_store()
    shutil.rmtree(path.with_name("ade.db.hints"))
    with pytest.raises(StoreMissing, match="start a new process"):  # this process has had it open
        await open_store()
    assert not path.exists()


async def test_a_process_with_the_id_of_a_store_opens_no_other_one(open_store: OpenStore, path: Path) -> None:
    stores = await open_store()
    url = f"sqlite:///{path}"

    with pytest.raises(StoreReplaced, match="another store"):
        await open_sqlite(url, StoreSettings(ballast_mb=0), store_id="0" * 32)
    again = await open_sqlite(url, StoreSettings(ballast_mb=0), store_id=stores.id)
    assert again.id == stores.id
    await again.close()


async def test_a_watchdog_creates_no_store(tmp_path: Path) -> None:
    worker = Worker(id="w1", hostname="h", pid=1, started_at=0, version="0")
    place = StoreLocation(f"sqlite:///{tmp_path / 'gone.db'}", Settings())
    about = {"worker": worker, "lease_ms": 60_000, "store": msgspec.json.encode(place).decode()}

    with pytest.raises(StoreMissing):
        await asyncio.to_thread(renewer, msgspec.json.encode(about).decode())

    assert list(tmp_path.iterdir()) == []


async def test_a_database_copied_without_its_log_is_a_warning_of_doctor(
    open_store: OpenStore, path: Path, clock: TestClock, tmp_path: Path
) -> None:
    scene = Scene(await open_store(clock), clock)
    await scene.add()
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "ade.db"
    shutil.copy(path, copy)

    stores = await open_sqlite(f"sqlite:///{copy}", StoreSettings(ballast_mb=0), clock)

    assert any("without its write-ahead log" in each for each in (await stores.maintenance.health()).warnings)
    assert (await scene.stores.maintenance.health()).warnings == []
    await stores.close()


async def test_a_backup_and_a_copy_with_its_log_are_no_warning(
    open_store: OpenStore, path: Path, clock: TestClock, tmp_path: Path
) -> None:
    scene = Scene(await open_store(clock), clock)
    await scene.add()
    copy, backup = tmp_path / "copy.db", tmp_path / "backup.db"
    shutil.copy(path, copy)
    shutil.copy(path.with_name("ade.db-wal"), tmp_path / "copy.db-wal")
    async for _ in scene.stores.maintenance.backup(str(backup)):
        pass

    for file in (copy, backup):
        stores = await open_sqlite(f"sqlite:///{file}", StoreSettings(ballast_mb=0), clock)
        assert (await stores.maintenance.health()).warnings == []
        assert len((await stores.tasks.find(TaskQuery(limit=10))).tasks) == 1
        await stores.close()


async def test_a_real_write_is_part_of_the_check_that_a_store_is_writable(scene: Scene, path: Path) -> None:
    await scene.stores.maintenance.check_writable()
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT value FROM meta WHERE key = 'probes'").fetchall() == [("1",)]
    connection.close()
    path.with_name("ade.db-wal").unlink()

    with pytest.raises(StoreReplaced):
        await scene.stores.maintenance.check_writable()


async def test_a_process_of_an_older_version_writes_nothing_to_an_upgraded_store(scene: Scene, path: Path) -> None:
    running = await scene.start()
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", 999)
    newer.close()

    for write in (scene.add(), scene.succeed(running)):
        with pytest.raises(StoreTooNew, match="newer version"):
            await write
    with pytest.raises(StoreTooNew):
        scene.renew(running)

    async def is_refused() -> bool:
        try:
            await scene.stores.tasks.get(["x"])
        except StoreTooNew:
            return True
        return False

    await eventually(is_refused, 5)  # nor does it read what it does not understand


async def test_a_store_that_goes_back_to_an_older_version_is_not_written(scene: Scene, path: Path) -> None:
    older = apsw.Connection(str(path))
    version = older.pragma("user_version")
    older.pragma("user_version", 1)

    async def is_refused() -> bool:
        try:
            await scene.stores.tasks.get(["x"])
        except StoreTooOld:
            return True
        return False

    await eventually(is_refused, 5)  # the writer has noticed it without a write
    with pytest.raises(StoreTooOld):
        await scene.add()
    older.pragma("user_version", version)
    older.close()
    await eventually(partial(writes, scene), 5)


async def test_a_check_of_the_files_that_fails_does_not_stop_the_writer(
    open_store: OpenStore, clock: TestClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError("no access to the directory")

    monkeypatch.setattr(FileIdentity, "look", fail)
    scene = Scene(await open_store(clock), clock)

    async with asyncio.timeout(60):
        await scene.add()
    assert "store.check_failed" in caplog.text


async def writes(scene: Scene) -> bool:
    try:
        await scene.add()
    except StoreTooOld:
        return False
    return True


async def test_what_was_found_stays_known_until_the_next_checks_are_done(scene: Scene, path: Path) -> None:
    log, known = path.with_name("ade.db-wal"), list[object]()
    identity = FileIdentity(DatabaseFiles(path))
    connection = connect(path)
    identity.note_opened(connection)
    log.rename(log.with_suffix(".away"))
    identity.look(connection)

    class Watched(apsw.Connection):
        def read(self, *_args: object) -> tuple[bool, bytes]:
            known.append(identity.trouble)
            raise apsw.SQLError

    identity._meta_page = (0, 512)
    log.with_suffix(".away").rename(log)
    identity.look(Watched(str(path)))

    assert isinstance(known[0], StoreReplaced)
    assert identity.trouble is None
    connection.close()


async def test_a_lost_folder_of_hints_keeps_nobody_from_working(scene: Scene, path: Path) -> None:
    shutil.rmtree(path.with_name("ade.db.hints"))

    scene.stores.wakeups.notify("work")

    await scene.succeed(await scene.start())
    assert await scene.counts() == {"completed": 1}


async def test_a_disk_that_is_nearly_full_takes_no_new_work(open_store: OpenStore, clock: TestClock) -> None:
    plenty = Scene(await open_store(clock), clock)
    running = await plenty.start()
    scarce = Scene(await open_store(clock, min_free_percent=100.1), clock)

    with pytest.raises(DiskFull, match="min_free_percent"):
        await scarce.add()

    await scarce.succeed(running)
    assert any("no new task is taken" in warning for warning in (await scarce.stores.maintenance.health()).warnings)


async def test_a_ballast_is_kept_and_when_given_up_no_new_work_is_taken_until_it_is_back(
    open_store: OpenStore, path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(await open_store(clock, ballast_mb=1), clock)
    ballast = path.with_name("ade.db.ballast")
    assert ballast.stat().st_size == 1 << 20
    ballast.unlink()  # as another process does on a full disk
    monkeypatch.setattr("ade.stores.sqlite.writer._LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("ade.stores.sqlite.files.free_bytes", lambda folder: 1 << 20)

    with pytest.raises(DiskFull, match="ballast"):
        await scene.add()
    monkeypatch.setattr("ade.stores.sqlite.files.free_bytes", lambda folder: 2 << 20)

    await scene.add()
    assert ballast.exists()


async def test_queues_without_a_limit_of_their_own_have_the_usual_one(open_store: OpenStore, clock: TestClock) -> None:
    scene = Scene(await open_store(clock, queue_depth=2), clock)
    await scene.stores.queues.configure(Queue(name="wide", max_depth=5))
    await scene.add_many(5, queue="wide")
    await scene.add_many(2)

    with pytest.raises(QueueFull):
        await scene.add()


async def test_a_closed_store_says_so(open_store: OpenStore, clock: TestClock) -> None:
    scene = Scene(await open_store(clock), clock)
    await scene.stores.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        await scene.add()
    with pytest.raises(StoreUnavailable, match="closed"):
        await scene.stores.tasks.get(["x"])
    with pytest.raises(StoreUnavailable, match="closed"):
        scene.renew()
