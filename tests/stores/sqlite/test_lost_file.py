"""The file goes away or becomes another one while it is in use: a clear error, never a new and empty database."""

import shutil
from pathlib import Path

import pytest

from ade.errors import DiskFull, QueueFull, StoreUnavailable
from ade.stores.sqlite.connection import connect
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import Queue
from tests.stores.sqlite.conftest import OpenStore


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
    monkeypatch.setattr("ade.stores.sqlite.files._free_bytes", lambda folder: 1 << 20)

    with pytest.raises(DiskFull, match="ballast"):
        await scene.add()
    monkeypatch.setattr("ade.stores.sqlite.files._free_bytes", lambda folder: 2 << 20)

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
