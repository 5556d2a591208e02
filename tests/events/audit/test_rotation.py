"""A limit for the size of the audit copy: old entries are rotated out, and the rest is still one valid chain."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from ade.approvals.audit_check import audit_report
from ade.composition.worker import audit_jobs
from ade.errors import AuditBroken
from ade.events.audit_chain import AuditEntry, AuditHead, first_break
from ade.events.audit_copy import AuditCopy, read_chain_head
from tests.domain import EventSettings, ExitCode, Stores
from tests.events.audit.copies import Place
from tests.events.audit.test_audit_copy import checked, copy_all, happen

MANY = 300
on_postgres = pytest.mark.parametrize("place", ["postgres"], indirect=True)
in_a_file = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@pytest.fixture
async def audit(stores: Stores, audit: AuditCopy) -> AuditCopy:
    """A copy that has entries."""
    await happen(stores, MANY)
    await copy_all(stores, audit)
    return audit


@in_a_file
async def test_a_copy_within_its_limit_is_left_alone(audit: AuditCopy) -> None:
    assert await audit.rotate(1 << 30, None) == 0
    assert await audit.base() == AuditHead()


@on_postgres
async def test_a_copy_in_postgresql_is_never_rotated(audit: AuditCopy, tmp_path: Path) -> None:
    assert await audit.rotate(1, tmp_path / "old") == 0
    assert (await audit.base(), await audit.count()) == (AuditHead(), MANY)
    assert not (tmp_path / "old").exists()


@in_a_file
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


@in_a_file
async def test_a_rotated_chain_still_shows_tampering(stores: Stores, audit: AuditCopy, place: Place) -> None:
    await audit.rotate(1, None)
    await happen(stores, 5)
    await copy_all(stores, audit)
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        place.execute("DELETE FROM entry")
    place.execute("UPDATE base SET hash = 'other'")

    with pytest.raises(AuditBroken, match="breaks at entry"):
        await checked(stores, audit)


@in_a_file
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


def command(place: Place, *arguments: str) -> str:
    """Run `ade audit` with these arguments and return its output."""
    line = [sys.executable, "-m", "ade.cli", "audit", *arguments, "--store", place.url]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == ExitCode.OK, done.stderr
    return done.stdout


@in_a_file
async def test_verify_names_the_last_rotated_entry_and_skips_older_anchors(
    stores: Stores, audit: AuditCopy, place: Place, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    anchors = ("--key-file", str(tmp_path / "key"), *("--file", str(tmp_path / "anchors.jsonl")))
    command(place, "anchor", *anchors)
    await happen(stores, 5)
    await copy_all(stores, audit)
    command(place, "anchor", *anchors)

    await audit.rotate(1, None)
    verified = command(place, "verify", *anchors[:2], "--anchors", anchors[3])

    assert f"Entries up to seq {(await audit.base()).seq} were rotated out, and are not verified\n" in verified
    assert "Anchors that the chain contains: 1\n" in verified


@in_a_file
async def test_a_worker_rotates_as_a_job(stores: Stores, audit: AuditCopy, place: Place, tmp_path: Path) -> None:
    limited = EventSettings(audit_max_mb=1, audit_archive_dir=str(tmp_path / "old"))
    async with audit_jobs(place.url, stores, None, limited) as jobs:
        [rotation] = [job for job in jobs if job.name == "audit_rotation"]
        assert await rotation.perform() == 0  # it is smaller than a megabyte
        await happen(stores, 4_000)
        await copy_all(stores, audit)
        assert await rotation.perform() == MANY + 4_000 - 1
        assert await rotation.perform() == 0
    assert [file.name for file in (tmp_path / "old").iterdir()] == [f"audit-1-{MANY + 4_000 - 1}.jsonl.gz"]
    async with audit_jobs(place.url, stores, None, EventSettings()) as jobs:
        assert [job.name for job in jobs] == ["audit"]
