"""The audit copy over the operations: looked at, verified, handed out."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import msgspec
import pytest
from msgspec.structs import replace

from ade.errors import AuditBroken, NotPermitted
from ade.events import api as events_api
from ade.events.api import ExportAudit, ListAuditEntries
from ade.events.audit_chain import AuditEntry, AuditHead, first_break
from ade.server.pagination import RawContent
from ade.server.request_types import Nothing
from ade.tasks.api import create
from tests.domain import NewTask, RequestRefused, Role
from tests.server.operations import LOCAL, Operations


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the audit copy of a server's store is, too."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def shop(ops: Operations) -> Operations:
    """Five things have happened."""
    for _ in range(5):
        await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    return ops


def audit_file(folder: Path) -> Path:
    [file] = [*folder.glob("*.audit.db"), *folder.glob(".ade/audit.db")]
    return file


def tamper(folder: Path, body: bytes = b'{"type":"nothing.happened","at":1,"seq":1}') -> None:
    """Somebody who can write the file changes its third entry, against the triggers."""
    connection = apsw.Connection(str(audit_file(folder)))
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    [(table,)] = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    seq = connection.execute(f"SELECT seq FROM {table} ORDER BY seq LIMIT 1 OFFSET 2").fetchall()[0][0]
    connection.execute(f"UPDATE {table} SET body = ? WHERE seq = ?", (body, seq))
    connection.close()


async def exported(content: RawContent) -> bytes:
    assert isinstance(content.body, AsyncIterator)
    return b"".join([part async for part in content.body])


async def test_what_happened_is_copied_listed_and_holds(shop: Operations) -> None:
    log = await shop.services.stores.events.read(0, 100)
    newest = await events_api.list_audit_entries(shop.services, LOCAL, ListAuditEntries(limit=2))
    assert [line.event for line in newest.items] == log[-2:]

    first = await events_api.list_audit_entries(shop.services, LOCAL, ListAuditEntries(after=0, limit=3))
    second = await events_api.list_audit_entries(shop.services, LOCAL, ListAuditEntries(after=0, cursor=first.next))
    assert [line.event for line in (*first.items, *second.items)] == log
    task_id = log[1].task_id
    assert task_id is not None
    of_one = await events_api.list_audit_entries(shop.services, LOCAL, ListAuditEntries(task=(task_id,)))
    assert [line.seq for line in of_one.items] == [log[1].seq]

    report = await events_api.verify_audit(shop.services, LOCAL, Nothing())
    assert (report.holds, report.entries, report.seq, report.broken) == (True, len(log), log[-1].seq, None)
    assert report.hash == newest.items[-1].hash


async def test_it_is_verified_once_at_a_time(shop: Operations) -> None:
    done = await asyncio.gather(
        *[events_api.verify_audit(shop.services, LOCAL, Nothing()) for _ in range(3)], return_exceptions=True
    )
    refused = [each for each in done if isinstance(each, RequestRefused)]
    assert [each.problem.status for each in refused] == [503, 503]
    assert (await events_api.verify_audit(shop.services, LOCAL, Nothing())).holds


async def test_an_export_can_be_verified_by_others(shop: Operations) -> None:
    content = await events_api.export_audit(shop.services, LOCAL, ExportAudit())
    lines = (await exported(content)).splitlines()
    assert (content.media_type, content.file_name) == ("application/x-ndjson", "ade-audit.jsonl")

    class Line(msgspec.Struct):
        seq: int
        hash: str
        event: msgspec.Raw

    read = [msgspec.json.decode(line, type=Line) for line in lines]
    entries = [AuditEntry(line.seq, bytes(line.event), line.hash) for line in read]
    assert len(entries) == len(await shop.services.stores.events.read(0, 100))
    assert first_break(AuditHead(), entries) is None

    rest = await events_api.export_audit(shop.services, LOCAL, ExportAudit(after=entries[-2].seq))
    assert (await exported(rest)).splitlines() == lines[-1:]


async def test_tampering_is_an_answer_that_names_the_entry(shop: Operations, folder: Path) -> None:
    assert (await events_api.verify_audit(shop.services, LOCAL, Nothing())).holds
    tamper(folder)
    report = await events_api.verify_audit(shop.services, LOCAL, Nothing())
    third = (await shop.services.stores.events.read(0, 100))[2]
    assert not report.holds
    assert f"entry {third.seq}" in (report.broken or "")


async def test_an_entry_that_is_no_event_is_shown_under_every_filter(shop: Operations, folder: Path) -> None:
    await events_api.verify_audit(shop.services, LOCAL, Nothing())
    tamper(folder, b"not JSON")
    third = (await shop.services.stores.events.read(0, 100))[2]
    found = await events_api.list_audit_entries(shop.services, LOCAL, ListAuditEntries(after=0, type=("alert",)))
    assert [(line.seq, line.event) for line in found.items] == [(third.seq, None)]


async def test_a_copy_that_is_gone_is_noticed(shop: Operations, folder: Path) -> None:
    assert (await events_api.verify_audit(shop.services, LOCAL, Nothing())).holds
    audit_file(folder).unlink()
    report = await events_api.verify_audit(shop.services, LOCAL, Nothing())
    assert (report.holds, report.entries) == (False, 0)
    assert "removed" in (report.broken or "")
    with pytest.raises(AuditBroken):  # before anything is sent
        await events_api.export_audit(shop.services, LOCAL, ExportAudit())
    with pytest.raises(AuditBroken):
        await events_api.list_audit_entries(shop.services, LOCAL, ListAuditEntries())


async def test_what_is_in_memory_leaves_nothing_to_audit(shop: Operations) -> None:
    services = replace(shop.services, audit=None)
    assert (await events_api.list_audit_entries(services, LOCAL, ListAuditEntries())).items == ()
    assert (await events_api.verify_audit(services, LOCAL, Nothing())).holds
    assert await exported(await events_api.export_audit(services, LOCAL, ExportAudit())) == b""


async def test_operators_look_and_admins_take_it_away(ops: Operations) -> None:
    operator, viewer = await ops.account("olga"), await ops.account("vera", Role.VIEWER)
    for operation in ("list_audit_entries", "verify_audit"):
        ops.request(operator, operation)
        with pytest.raises(NotPermitted):
            ops.request(viewer, operation)
    with pytest.raises(NotPermitted):
        ops.request(operator, "export_audit")
