"""The threads that read: how they begin, and what becomes of reads that nobody waits for."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from ade.errors import StoreUnavailable
from ade.stores.sqlite.connection import connect
from ade.stores.sqlite.readers import FileReaders
from ade.stores.sqlite.writer import WriteChecks
from tests.stores.sqlite.conftest import OpenStore


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[FileReaders]:
    path = tmp_path / "ade.db"
    connect(path).close()
    made = FileReaders(path, WriteChecks())
    yield made
    made.close()


def one(connection: apsw.Connection) -> object:
    return connection.execute("SELECT 1").get


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_a_system_without_threads_is_told_of_and_may_recover(
    readers: FileReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(StoreUnavailable, match="can't start new thread"):
            await readers.call(one)

    assert await readers.call(one) == 1


async def test_the_only_thread_that_there_is_reads_for_all(
    readers: FileReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await readers.call(one)
    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert await asyncio.gather(*(readers.call(one) for _ in range(5))) == [1] * 5


async def test_a_read_that_nobody_waits_for_any_more_is_left_out(readers: FileReaders) -> None:
    may_go_on, done = threading.Event(), []

    def slow(connection: apsw.Connection) -> None:
        assert may_go_on.wait(60)

    busy = [asyncio.create_task(readers.call(slow)) for _ in range(2)]
    await asyncio.sleep(0)
    given_up = asyncio.create_task(readers.call(lambda c: done.append("given up")))
    waited_for = asyncio.create_task(readers.call(lambda c: done.append("waited for")))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)

    may_go_on.set()
    await asyncio.gather(*busy, waited_for)

    assert done == ["waited for"]


async def test_a_read_that_failed_leaves_a_connection_that_works(readers: FileReaders) -> None:
    def wrong(connection: apsw.Connection) -> object:
        connection.execute("SELECT 1")
        return connection.execute("SELECT * FROM nothing").get

    with pytest.raises(StoreUnavailable, match="nothing"):
        await readers.call(wrong)

    assert await readers.call(one) == 1


async def test_after_the_end_nothing_is_read(readers: FileReaders) -> None:
    await readers.call(one)
    readers.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        await readers.call(one)


ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def test_reads_do_not_wait_for_scans(readers: FileReaders) -> None:
    may_go_on = threading.Event()
    scans = [asyncio.create_task(readers.scan(lambda _: may_go_on.wait(60))) for _ in range(10)]
    await asyncio.sleep(0)

    assert await readers.call(one) == 1

    may_go_on.set()
    assert await asyncio.gather(*scans) == [True] * 10


@pytest.mark.parametrize("lane", ["call", "scan"])
async def test_a_statement_stops_when_its_caller_is_gone(readers: FileReaders, lane: str) -> None:
    begun = threading.Event()

    def endless(connection: apsw.Connection) -> object:
        begun.set()
        return connection.execute(ENDLESS).get

    read = getattr(readers, lane)
    asked = [asyncio.create_task(read(endless)) for _ in range(2)]  # as many as there are threads, or more
    await asyncio.to_thread(begun.wait, 60)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)

    async with asyncio.timeout(60):
        assert await read(one) == 1


async def test_a_statement_that_takes_too_long_is_stopped_and_the_thread_goes_on(
    readers: FileReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.stores.sqlite.readers._LONGEST_S", 0.05)
    with pytest.raises(StoreUnavailable, match="took longer"):
        await readers.call(lambda connection: connection.execute(ENDLESS).get)

    assert await readers.call(one) == 1


async def test_checks_of_the_whole_database_may_take_long(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = await open_store()
    monkeypatch.setattr("ade.stores.sqlite.readers._STEPS", 1)
    monkeypatch.setattr("ade.stores.sqlite.readers._LONGEST_S", -1.0)  # every other read is stopped
    with pytest.raises(StoreUnavailable, match="took longer"):
        await stores.tasks.get(["x"])

    assert await stores.maintenance.check_invariants() == []
