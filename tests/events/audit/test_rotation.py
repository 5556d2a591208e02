"""A limit for the size of the audit copy: old entries are rotated out, and the rest is still one valid chain."""

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from ade.approvals.audit_check import audit_report
from ade.composition.worker import audit_jobs
from ade.errors import AuditBroken
from ade.events.audit_chain import AuditEntry, AuditHead, first_break
from ade.events.audit_copy import AuditCopy, read_chain_head
from tests.domain import EventSettings, Stores, open_stores
from tests.events.audit.copies import BesideTheDatabase
from tests.events.audit.test_audit_copy import checked, copy_all, happen

MANY = 300


@pytest.fixture
def place(tmp_path: Path) -> BesideTheDatabase:
    return BesideTheDatabase(tmp_path)


@pytest.fixture
async def stores(place: BesideTheDatabase) -> AsyncIterator[Stores]:
    opened = await open_stores(place.url)
    yield opened
    await opened.close()


@pytest.fixture
async def audit(place: BesideTheDatabase, stores: Stores) -> AsyncIterator[AuditCopy]:
    async with place.open() as opened:
        await happen(stores, MANY)
        await copy_all(stores, opened)
        yield opened


async def test_a_copy_within_its_limit_is_left_alone(audit: AuditCopy) -> None:
    assert await audit.rotate(1 << 30, None) == 0
    assert await audit.base() == AuditHead()


async def test_rotated_entries_are_a_file_that_continues_into_the_chain(
    stores: Stores, audit: AuditCopy, tmp_path: Path
) -> None:
    head = await audit.head()

    rotated = await audit.rotate(1, tmp_path / "old")

    assert rotated == MANY - 1  # the head of the chain stays
    [file] = (tmp_path / "old").iterdir()
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    bodies = [json.dumps(line["event"], separators=(",", ":"), ensure_ascii=False).encode() for line in lines]
    entries = [AuditEntry(line["seq"], body, line["hash"]) for line, body in zip(lines, bodies, strict=True)]
    assert first_break(AuditHead(), entries) is None
    assert (await audit.base(), await audit.head()) == (AuditHead(entries[-1].seq, entries[-1].hash), head)
    await happen(stores, 20)
    await copy_all(stores, audit)
    assert (await checked(stores, audit))[-1] == (21, 21)
    assert (await read_chain_head(stores.events, audit)).seq == MANY + 20


async def test_a_rotated_chain_still_shows_tampering(
    stores: Stores, audit: AuditCopy, place: BesideTheDatabase, tmp_path: Path
) -> None:
    await audit.rotate(1, None)
    await happen(stores, 5)
    await copy_all(stores, audit)
    connection = apsw.Connection(str(tmp_path / "ade.audit.db"))
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        connection.execute("DELETE FROM entry")
    connection.execute("UPDATE base SET hash = 'other'")
    connection.close()

    with pytest.raises(AuditBroken, match="breaks at entry"):
        await checked(stores, audit)


async def test_a_rotation_during_the_verification_is_not_a_broken_chain(
    stores: Stores, audit: AuditCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.events.audit_copy._PAGE", 100)
    reads, entries = 0, audit.entries

    async def read(after: int, limit: int) -> list[AuditEntry]:
        nonlocal reads
        reads += 1
        if reads == 2:
            await audit.rotate(1, None)
        return await entries(after, limit)

    monkeypatch.setattr(audit, "entries", read)

    report = await audit_report(stores, audit)

    assert (report.broken, report.entries, report.begins_after) == (None, 1, MANY - 1)


async def test_a_worker_rotates_as_a_job(stores: Stores, audit: AuditCopy, place: BesideTheDatabase) -> None:
    async with audit_jobs(place.url, stores, None, EventSettings(audit_max_mb=1)) as jobs:
        assert [job.name for job in jobs] == ["audit", "audit_rotation"]
        assert await jobs[1].perform() == 0  # it is smaller than a megabyte
    async with audit_jobs(place.url, stores, None, EventSettings()) as jobs:
        assert [job.name for job in jobs] == ["audit"]
