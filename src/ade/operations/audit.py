"""The audit copy: looked at, verified, and handed out."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from ade.core.audit import AuditEntry, AuditHead, AuditLine, AuditReport, line_of
from ade.core.errors import AuditBroken
from ade.core.feeds.filters import compile_filter
from ade.core.web.forms.events import ExportAudit, ListAuditEntries
from ade.core.web.forms.tasks import Nothing
from ade.events.audit import AuditCopy, current_copy, verify
from ade.operations.events import looked_through
from ade.operations.kit import Asked, Content, Office, Page
from ade.operations.turns import alone
from ade.ports import EventLog

_PAGE = 1_000


async def list_audit_entries(office: Office, asked: Asked, query: ListAuditEntries) -> Page[AuditLine]:
    """What cannot be read fits every filter: it must be noticed."""
    fits = compile_filter(query.filter())
    if office.audit is None:
        return Page(items=())
    async with current_copy(office.stores.events, office.audit) as copy:

        async def read(after: int, limit: int) -> Sequence[AuditLine]:
            return [line_of(entry) for entry in await copy.entries(after, limit)]

        async def newest(limit: int) -> Sequence[AuditLine]:
            return [line_of(entry) for entry in await copy.last_entries(limit)]

        return await looked_through("audit", query, read, newest, lambda line: line.event is None or fits(line.event))


async def verify_audit(office: Office, asked: Asked, body: Nothing) -> AuditReport:
    """Walks along all of it, and takes its time. A chain that does not hold is an answer, not an error."""
    if office.audit is None:
        return AuditReport(holds=True, entries=0)
    log = office.stores.events
    try:
        with alone(office, "verifying the audit copy"):
            async with current_copy(log, office.audit) as copy:
                return await _walk(log, copy)
    except AuditBroken as broken:
        return AuditReport(holds=False, entries=0, broken=broken.detail, advice=broken.advice or None)


async def _walk(log: EventLog, copy: AuditCopy) -> AuditReport:
    from ade.core.approvals.proof import Proof  # with all rules of approvals

    checked, proof, broken = 0, Proof(), None
    try:
        async for so_far, _ in verify(log, copy, proof):
            checked = so_far
    except AuditBroken as error:
        broken = error.detail
    head = await copy.head() if broken is None else AuditHead()
    return AuditReport(
        holds=broken is None,
        entries=checked,
        seq=head.seq,
        hash=head.hash,
        approved_starts=proof.starts,
        unknown_starts=proof.unknown,
        broken=broken,
    )


async def export_audit(office: Office, asked: Asked, query: ExportAudit) -> Content:
    """JSON lines: the seq, the hash, and the event byte by byte as it was copied, so that others can verify it."""
    if office.audit is not None:
        async with current_copy(office.stores.events, office.audit):
            pass  # what is wrong is told before anything is sent
    return Content(media_type="application/x-ndjson", body=_lines(office, query.after), file_name="ade-audit.jsonl")


async def _lines(office: Office, after: int) -> AsyncIterator[bytes]:
    if office.audit is None:
        return
    async with office.audit.open() as copy:
        while entries := await copy.entries(after, _PAGE):
            yield b"".join(_line(entry) for entry in entries)
            after = entries[-1].seq


def _line(entry: AuditEntry) -> bytes:
    return msgspec.json.encode({"seq": entry.seq, "hash": entry.hash, "event": msgspec.Raw(entry.body)}) + b"\n"
