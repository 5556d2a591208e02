"""The audit copy: every event once, in order, and no way to change one unnoticed."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from ade.app.auditing import audit_duties
from ade.core.audit import AuditHead, chain, first_break
from ade.core.errors import AuditBroken, StoreForeign
from ade.core.events import Event
from ade.core.ids import uuid7
from ade.core.records import Task
from ade.events.audit import CURSOR, begin, copy_events, verify
from ade.ports import Stores
from ade.queue.enqueue import enqueue
from ade.queue.payloads import Payloads
from ade.stores.sqlite.audit import SqliteAudit, open_audit
from ade.wiring import open_stores
from ade.worker.loops import do_duty


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ade.db'}"


@pytest.fixture
def audit_file(tmp_path: Path) -> Path:
    return tmp_path / "ade.audit.db"


@pytest.fixture
async def stores(url: str) -> AsyncIterator[Stores]:
    opened = await open_stores(url)
    yield opened
    await opened.close()


@pytest.fixture
async def audit(url: str) -> AsyncIterator[SqliteAudit]:
    opened = await open_audit(url)
    yield opened
    await opened.close()


async def happen(stores: Stores, count: int) -> None:
    """Some things happen that make events."""
    now = stores.clock.now()
    tasks = [Task(id=uuid7(now, os.urandom(10)), name="work") for _ in range(count)]
    await enqueue(stores, Payloads(stores.blobs), tasks)


async def copy_all(stores: Stores, audit: SqliteAudit, limit: int = 1_000) -> int:
    copied = 0
    while count := await copy_events(stores.events, audit, limit=limit):
        copied += count
    return copied


async def checked(stores: Stores, audit: SqliteAudit) -> list[tuple[int, int]]:
    return [step async for step in verify(stores.events, audit)]


def tamper(file: Path, statement: str) -> None:
    """Somebody with access to the file does away with the triggers and then does as they please."""
    connection = apsw.Connection(str(file))
    connection.execute("DROP TRIGGER entry_is_never_changed; DROP TRIGGER entry_is_never_removed")
    connection.execute(statement)
    connection.close()


async def test_every_event_is_copied_once_and_in_order(stores: Stores, audit: SqliteAudit) -> None:
    await happen(stores, 25)
    assert await copy_all(stores, audit, limit=7) == 25
    await happen(stores, 5)
    assert await copy_all(stores, audit) == 5
    assert [entry.seq for entry in await audit.entries(0, 100)] == list(range(1, 31))
    assert await stores.events.cursor(CURSOR) == 30


async def test_copying_twice_at_once_copies_nothing_twice(stores: Stores, audit: SqliteAudit, url: str) -> None:
    await happen(stores, 50)
    other = await open_audit(url)
    await asyncio.gather(*(copy_all(stores, copy, limit=7) for copy in (audit, other)))
    await other.close()
    assert await audit.count() == 50
    assert (await checked(stores, audit))[-1] == (50, 50)


async def test_a_crash_between_copy_and_cursor_repeats_nothing(stores: Stores, audit: SqliteAudit) -> None:
    await happen(stores, 3)
    await audit.append(await stores.events.read(0, 100))  # and then the process died
    assert await copy_all(stores, audit) == 0
    assert await stores.events.cursor(CURSOR) == 3
    assert await audit.count() == 3


async def test_an_intact_chain_is_confirmed_with_progress(stores: Stores, audit: SqliteAudit) -> None:
    await happen(stores, 1_500)
    await copy_all(stores, audit)
    assert await checked(stores, audit) == [(0, 1_500), (1_000, 1_500), (1_500, 1_500)]


async def test_an_empty_chain_is_intact(stores: Stores, audit: SqliteAudit) -> None:
    assert await checked(stores, audit) == [(0, 0)]


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("UPDATE entry SET body = replace(body, 'created', 'deleted') WHERE seq = 7", 7),
        ("UPDATE entry SET body = CAST(replace(CAST(body AS TEXT), 'created', 'deleted') AS BLOB) WHERE seq = 7", 7),
        ("DELETE FROM entry WHERE seq = 7", 8),
        ("DELETE FROM entry WHERE seq = 1", 2),
        ("UPDATE entry SET hash = (SELECT hash FROM entry WHERE seq = 3) WHERE seq = 7", 7),
        ("UPDATE entry SET seq = 70 WHERE seq = 10", 70),
        ("INSERT INTO entry SELECT 11, body, hash FROM entry WHERE seq = 7", 11),
    ],
)
async def test_the_first_wrong_entry_is_named(
    stores: Stores, audit: SqliteAudit, audit_file: Path, statement: str, seq: int
) -> None:
    await happen(stores, 10)
    await copy_all(stores, audit)
    tamper(audit_file, statement)
    with pytest.raises(AuditBroken, match=rf"breaks at entry {seq}\b"):
        await checked(stores, audit)


async def test_a_cut_tail_is_noticed_and_not_filled_up_again(
    stores: Stores, audit: SqliteAudit, audit_file: Path
) -> None:
    await happen(stores, 10)
    await copy_all(stores, audit)
    tamper(audit_file, "DELETE FROM entry WHERE seq > 6")
    for attempt in (checked(stores, audit), copy_all(stores, audit)):
        with pytest.raises(AuditBroken, match="ends at entry 6, but had reached 10"):
            await attempt


async def test_a_store_that_was_set_back_is_noticed(stores: Stores, audit: SqliteAudit) -> None:
    await happen(stores, 3)
    await audit.append([*await stores.events.read(0, 100), Event(type="task.created", at=0, seq=4)])
    with pytest.raises(AuditBroken, match="older backup"):
        await copy_events(stores.events, audit)


async def test_rows_can_be_neither_changed_nor_removed_through_sql(
    stores: Stores, audit: SqliteAudit, audit_file: Path
) -> None:
    await happen(stores, 1)
    await copy_all(stores, audit)
    connection = apsw.Connection(str(audit_file))
    for statement in ("UPDATE entry SET hash = ''", "DELETE FROM entry"):
        with pytest.raises(apsw.ConstraintError, match="append-only"):
            connection.execute(statement)
    connection.close()


async def test_a_file_of_another_program_is_left_as_it_is(url: str, audit_file: Path) -> None:
    foreign = apsw.Connection(str(audit_file))
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    with pytest.raises(StoreForeign):
        await open_audit(url)


async def test_workers_copy_as_a_duty_that_only_one_of_them_has(stores: Stores, audit: SqliteAudit, url: str) -> None:
    await happen(stores, 20)
    async with audit_duties(url, stores) as duties:
        [duty] = duties
        await asyncio.gather(*(do_duty(stores.sweeps, duty, f"worker {number}") for number in range(3)))
    assert await audit.count() == 20


async def test_in_memory_it_works_the_same() -> None:
    stores, audit = await open_stores("memory://"), await open_audit("memory://")
    await happen(stores, 5)
    assert await copy_all(stores, audit) == 5
    assert (await checked(stores, audit))[-1] == (5, 5)
    await audit.close()
    await stores.close()


def test_the_chain_can_be_checked_piece_by_piece() -> None:
    events = [Event(type="task.created", at=seq, seq=seq, payload={"b": 1, "a": seq}) for seq in range(1, 11)]
    entries = chain(AuditHead(), events)
    assert first_break(AuditHead(), entries) is None
    middle = AuditHead(entries[4].seq, entries[4].hash)
    assert first_break(middle, entries[5:]) is None
    assert first_break(AuditHead(), entries[5:]) == 6


async def test_a_lost_copy_is_begun_anew_with_what_the_log_still_has(
    stores: Stores, url: str, audit_file: Path
) -> None:
    first = await open_audit(url)
    await happen(stores, 3)
    await copy_all(stores, first)
    with pytest.raises(AuditBroken, match="only where there is none"):
        await begin(stores.events, first)
    await first.close()
    audit_file.unlink()
    second = await open_audit(url)
    with pytest.raises(AuditBroken, match="ade audit begin"):
        await copy_all(stores, second)

    head = await begin(stores.events, second)

    await happen(stores, 1)
    assert head.seq == 3
    assert await copy_all(stores, second) == 1
    assert [step async for step in verify(stores.events, second)][-1] == (4, 4)
    await second.close()


async def test_no_chain_begins_where_the_log_was_trimmed_to_its_end(stores: Stores, audit: SqliteAudit) -> None:
    await stores.events.advance(CURSOR, 7)

    with pytest.raises(AuditBroken, match="after some work"):
        await begin(stores.events, audit)
    assert await audit.head() == AuditHead()
