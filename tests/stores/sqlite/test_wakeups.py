"""Wake-ups through a touched file, seen by inotify or, where there is none, by looking again and again."""

import asyncio
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ade.stores.sqlite.files import place_of
from ade.stores.sqlite.wakeups import FileWakeups
from ade.stores.wakeups import LocalWakeups
from tests.domain import DONE, RULES, STOP, WORK


@pytest.fixture(params=["inotify", "polling"])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[FileWakeups]]:
    """Two processes' worth of hints on one folder."""
    if request.param == "polling":
        monkeypatch.setattr("ade.stores.sqlite.wakeups._inotify_on", lambda folder: None)
    wakeups = [FileWakeups(tmp_path / "hints"), FileWakeups(tmp_path / "hints")]
    yield wakeups
    for one in wakeups:
        one.close()


async def woken(wakeups: LocalWakeups, topic: str, seen: int) -> float:
    """How long the wait took."""
    began = time.monotonic()
    await wakeups.wait(topic, seen, 60)
    return time.monotonic() - began


async def test_who_waits_is_woken_by_another_process(pair: list[FileWakeups]) -> None:
    here, there = pair
    waiting = asyncio.create_task(woken(there, WORK, there.generation(WORK)))
    await asyncio.sleep(0)

    here.notify(WORK)

    assert await waiting < 30


async def test_a_hint_of_one_topic_wakes_nobody_who_waits_for_another(pair: list[FileWakeups]) -> None:
    here, there = pair
    seen = there.generation(DONE)
    waiting = asyncio.create_task(woken(there, WORK, there.generation(WORK)))
    await asyncio.sleep(0)
    here.notify(DONE)
    await there.wait(DONE, seen, 60)  # it came through

    assert not waiting.done()
    here.notify(WORK)
    assert await waiting < 30


async def test_what_was_rung_before_the_wait_is_not_waited_for(pair: list[FileWakeups]) -> None:
    here, _ = pair
    seen = here.generation(STOP)
    here.notify(STOP)

    assert await woken(here, STOP, seen) < 30


async def test_a_wait_ends_by_itself(pair: list[FileWakeups]) -> None:
    here, _ = pair
    ended, _ = await asyncio.wait([asyncio.create_task(here.wait(WORK, here.generation(WORK), 0.01))], timeout=30)

    assert len(ended) == 1


async def test_all_who_wait_are_woken(pair: list[FileWakeups]) -> None:
    here, there = pair
    waiting = [
        asyncio.create_task(woken(wakeups, WORK, wakeups.generation(WORK))) for wakeups in (here, there, there, here)
    ]
    await asyncio.sleep(0)

    here.notify(WORK)

    assert max(await asyncio.gather(*waiting)) < 30


async def test_a_closed_store_lets_everybody_go(pair: list[FileWakeups]) -> None:
    here, _ = pair
    waiting = asyncio.create_task(woken(here, WORK, here.generation(WORK)))
    await asyncio.sleep(0)

    await asyncio.to_thread(here.close)

    assert await waiting < 30


async def test_who_comes_and_goes_rings_for_nobody(pair: list[FileWakeups], tmp_path: Path) -> None:
    """Programs that enqueue come and go all the time, and each ring for the rules makes everybody read them anew."""
    here, there = pair
    called = asyncio.Event()
    there.follow(RULES, called.set)
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "hints").iterdir()}
    passing = FileWakeups(tmp_path / "hints")
    passing.follow(RULES, lambda: None)

    await asyncio.to_thread(passing.close)

    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "hints").iterdir()} == before
    assert passing._thread is not None
    assert not passing._thread.is_alive()
    here.notify(RULES)
    await asyncio.wait_for(called.wait(), 60)


async def test_a_forked_process_that_closes_keeps_its_parent_neither_deaf_nor_busy(tmp_path: Path) -> None:
    wakeups, called = FileWakeups(tmp_path / "hints"), asyncio.Event()
    wakeups.follow(RULES, called.set)
    os.eventfd_write(wakeups._end, 1)  # as `close` does there, where the thread is not
    os.utime(tmp_path / "hints" / RULES)
    await asyncio.wait_for(called.wait(), 60)
    before = time.process_time()

    await asyncio.sleep(0.5)

    assert time.process_time() - before < 0.3
    wakeups.close()


async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    wakeups = LocalWakeups()
    waiting = asyncio.create_task(woken(wakeups, WORK, wakeups.generation(WORK)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert wakeups._topics[WORK].waiters == []


def test_a_link_to_the_database_has_the_same_wakeups(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "ade.db")
    direct, linked = (
        place_of(f"sqlite:///{tmp_path / 'data' / 'ade.db'}"),
        place_of(f"sqlite:///{tmp_path / 'link.db'}"),
    )

    assert direct is not None
    assert linked is not None
    assert direct.wakeups == linked.wakeups


async def test_a_removed_file_of_a_topic_is_made_again(tmp_path: Path) -> None:
    here, there = FileWakeups(tmp_path / "hints"), FileWakeups(tmp_path / "hints")
    waiting = asyncio.create_task(woken(there, RULES, there.generation(RULES)))
    await asyncio.sleep(0)
    (tmp_path / "hints" / RULES).unlink()

    here.notify(RULES)

    assert (tmp_path / "hints" / RULES).exists()
    assert await waiting < 30
    here.close()
    there.close()


async def test_who_can_write_to_the_database_can_send_wakeups(tmp_path: Path) -> None:
    database, folder = tmp_path / "ade.db", tmp_path / "ade.db.hints"
    database.touch()
    database.chmod(0o660)  # of a group

    FileWakeups(folder, database=database).close()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o770
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o660}
