"""The audit copy, wherever it lies: every event once, in order, and no way to change one unnoticed."""

import asyncio
import os
import signal
import subprocess
import sys

import apsw
import psycopg
import pytest

from ade import Task
from ade.composition.audit import open_audit
from ade.composition.worker import AuditCopyJob, audit_jobs
from ade.errors import AuditBroken, StoreForeign
from ade.events.audit_chain import AuditHead, chain, first_break
from ade.events.audit_copy import CURSOR, AuditCopy, begin, copy_events, verify
from ade.worker.maintenance import run_job
from tests.architecture.repository import ROOT
from tests.domain import Event, Payloads, Stores, enqueue, events_after, open_stores, uuid7
from tests.events.audit.copies import Place


async def happen(stores: Stores, count: int) -> None:
    """Some things happen that make events."""
    now = stores.clock.now()
    tasks = [Task(id=uuid7(now, os.urandom(10)), name="work") for _ in range(count)]
    await enqueue(stores, Payloads(stores.blobs), tasks)


async def copy_all(stores: Stores, audit: AuditCopy, limit: int = 1_000) -> int:
    copied = 0
    while count := await copy_events(stores.events, audit, limit=limit):
        copied += count
    return copied


async def checked(stores: Stores, audit: AuditCopy) -> list[tuple[int, int]]:
    return [step async for step in verify(stores.events, audit)]


async def test_every_event_is_copied_once_and_in_order(stores: Stores, audit: AuditCopy) -> None:
    await happen(stores, 25)
    assert await copy_all(stores, audit, limit=7) == 25
    await happen(stores, 5)
    assert await copy_all(stores, audit) == 5
    assert [entry.seq for entry in await audit.entries(0, 100)] == list(range(1, 31))
    assert (await stores.events.cursors()).get(CURSOR, 0) == 30


async def test_copying_twice_at_once_copies_nothing_twice(stores: Stores, audit: AuditCopy, place: Place) -> None:
    await happen(stores, 50)
    async with place.open() as other:
        await asyncio.gather(*(copy_all(stores, copy, limit=7) for copy in (audit, other)))
    assert await audit.count() == 50
    assert (await checked(stores, audit))[-1] == (50, 50)


async def test_a_crash_between_copy_and_cursor_repeats_nothing(stores: Stores, audit: AuditCopy) -> None:
    await happen(stores, 3)
    await audit.append(await stores.events.read(0, 100))  # and then the process died
    assert await copy_all(stores, audit) == 0
    assert (await stores.events.cursors()).get(CURSOR, 0) == 3
    assert await audit.count() == 3


@pytest.mark.faults
async def test_a_copier_killed_between_copy_and_cursor_repeats_nothing(
    stores: Stores, audit: AuditCopy, place: Place
) -> None:
    await happen(stores, 3)
    program = [sys.executable, "-m", "tests.events.programs.die_before_the_cursor", place.url, place.audit_url or ""]
    died = subprocess.run(program, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert (await audit.count(), (await stores.events.cursors()).get(CURSOR, 0)) == (3, 0)

    await happen(stores, 2)
    assert await copy_all(stores, audit) == 2
    assert (await checked(stores, audit))[-1] == (5, 5)
    assert (await stores.events.cursors()).get(CURSOR, 0) == 5


async def test_an_intact_chain_is_confirmed_with_progress(stores: Stores, audit: AuditCopy) -> None:
    await happen(stores, 1_500)
    await copy_all(stores, audit)
    assert await checked(stores, audit) == [(0, 1_500), (1_000, 1_500), (1_500, 1_500)]


async def test_an_empty_chain_is_intact(stores: Stores, audit: AuditCopy) -> None:
    assert await checked(stores, audit) == [(0, 0)]


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("UPDATE entry SET body = CHANGED WHERE seq = 7", 7),
        ("DELETE FROM entry WHERE seq = 7", 8),
        ("DELETE FROM entry WHERE seq = 1", 2),
        ("UPDATE entry SET hash = (SELECT hash FROM entry WHERE seq = 3) WHERE seq = 7", 7),
        ("UPDATE entry SET seq = 70 WHERE seq = 10", 70),
        ("INSERT INTO entry SELECT 11, body, hash FROM entry WHERE seq = 7", 11),
    ],
)
async def test_the_first_wrong_entry_is_named(
    stores: Stores, audit: AuditCopy, place: Place, statement: str, seq: int
) -> None:
    await happen(stores, 10)
    await copy_all(stores, audit)
    place.tamper(statement.replace("entry", place.table).replace("CHANGED", place.changed_body))
    with pytest.raises(AuditBroken, match=rf"breaks at entry {seq}\b"):
        await checked(stores, audit)


async def test_a_cut_tail_is_noticed_and_not_filled_up_again(stores: Stores, audit: AuditCopy, place: Place) -> None:
    await happen(stores, 10)
    await copy_all(stores, audit)
    place.tamper(f"DELETE FROM {place.table} WHERE seq > 6")
    for attempt in (checked(stores, audit), copy_all(stores, audit)):
        with pytest.raises(AuditBroken, match="ends at entry 6, but had reached 10"):
            await attempt


async def test_a_store_that_was_set_back_is_noticed(stores: Stores, audit: AuditCopy) -> None:
    await happen(stores, 3)
    await audit.append([*await stores.events.read(0, 100), Event(type="task.created", at=0, seq=4)])
    with pytest.raises(AuditBroken, match="older backup"):
        await copy_events(stores.events, audit)


async def test_the_copy_of_another_store_is_left_alone(stores: Stores, audit: AuditCopy) -> None:
    other = await open_stores("memory://")
    await happen(other, 5)
    await copy_all(other, audit)
    await other.close()

    await happen(stores, 2)
    for attempt in (copy_events(stores.events, audit), checked(stores, audit)):
        with pytest.raises(AuditBroken, match="it is the copy of another store"):
            await attempt
    assert await audit.count() == 5


async def test_rows_can_be_neither_changed_nor_removed_through_sql(
    stores: Stores, audit: AuditCopy, place: Place
) -> None:
    await happen(stores, 1)
    await copy_all(stores, audit)
    for statement in (f"UPDATE {place.table} SET hash = ''", f"DELETE FROM {place.table}"):
        with pytest.raises((apsw.ConstraintError, psycopg.errors.RaiseException), match="append-only"):
            place.execute(statement)


async def test_what_is_of_another_program_is_left_as_it_is(place: Place) -> None:
    place.execute(f"CREATE TABLE {place.table} (theirs INTEGER)")
    with pytest.raises(StoreForeign):
        async with place.open() as copy:
            await copy.head()


async def test_workers_copy_as_a_duty_that_only_one_of_them_has(stores: Stores, audit: AuditCopy, place: Place) -> None:
    await happen(stores, 20)
    async with audit_jobs(place.url, stores, place.audit_url) as jobs:
        [duty] = jobs
        await asyncio.gather(*(run_job(stores.sweeps, duty, f"worker {number}") for number in range(3)))
    assert await audit.count() == 20


async def test_in_memory_it_works_the_same() -> None:
    stores = await open_stores("memory://")
    async with open_audit("memory://") as audit:
        await happen(stores, 5)
        assert await copy_all(stores, audit) == 5
        assert (await checked(stores, audit))[-1] == (5, 5)
    await stores.close()


def test_the_chain_can_be_checked_piece_by_piece() -> None:
    events = [Event(type="task.created", at=seq, seq=seq, payload={"b": 1, "a": seq}) for seq in range(1, 11)]
    entries = chain(AuditHead(), events)
    assert first_break(AuditHead(), entries) is None
    middle = AuditHead(entries[4].seq, entries[4].hash)
    assert first_break(middle, entries[5:]) is None
    assert first_break(AuditHead(), entries[5:]) == 6


async def test_a_lost_copy_is_begun_anew_with_what_the_log_still_has(stores: Stores, place: Place) -> None:
    async with place.open() as first:
        await happen(stores, 3)
        await copy_all(stores, first)
        with pytest.raises(AuditBroken, match="only be started if there is none"):
            await begin(stores.events, first)
    place.remove()
    async with place.open() as second:
        with pytest.raises(AuditBroken, match="ade audit begin"):
            await copy_all(stores, second)

        head = await begin(stores.events, second)

        await happen(stores, 1)
        assert head.seq == 3
        assert await copy_all(stores, second) == 1
        assert (await checked(stores, second))[-1] == (4, 4)


async def test_no_chain_begins_where_the_log_was_trimmed_to_its_end(stores: Stores, audit: AuditCopy) -> None:
    await stores.events.advance(CURSOR, 7)

    with pytest.raises(AuditBroken, match="when there are events"):
        await begin(stores.events, audit)
    assert await audit.head() == AuditHead()


async def test_a_backlog_is_counted_no_further_than_asked(stores: Stores) -> None:
    await happen(stores, 7)
    assert [await events_after(stores.events, 0, at_most) for at_most in (3, 7, 100)] == [3, 7, 7]


async def test_a_copier_that_cannot_copy_stands_back_so_that_another_can(stores: Stores, audit: AuditCopy) -> None:
    now = 100.0
    await happen(stores, 2)
    await stores.events.advance(CURSOR, 1)  # another machine has the copy up to here
    copier = AuditCopyJob(stores.events, audit, lambda: now)
    with pytest.raises(AuditBroken, match="another machine"):
        await copier.copy_page()
    assert not copier.may_run()
    now += 10
    assert copier.may_run()


async def test_a_copier_rests_between_pages_unless_it_is_far_behind(
    stores: Stores, audit: AuditCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.composition.worker._PAGE", 2)
    monkeypatch.setattr("ade.composition.worker._FAR_BEHIND", 3)
    await happen(stores, 9)
    copier = AuditCopyJob(stores.events, audit)
    assert [await copier.copy_page() for _ in range(5)] == [0, 0, 2, 2, 0]
    assert await audit.count() == 9
