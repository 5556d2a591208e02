"""`ade audit`: the copy of the event log that shows tampering."""

from typing import IO

import click

from ade.cli.confirming import confirm
from ade.cli.parsing import PLACE
from ade.cli.progress import progress
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.core.approvals.proof import Proof
from ade.core.audit import AuditReport
from ade.core.errors import AuditBroken
from ade.events.audit import begin, current_copy, verify
from ade.wiring import audit_place, open_audit

_LONGEST_S = 3_600.0  # for a server to walk along a long chain


@group("audit")
def audit() -> None:
    """Verify, export and begin the tamper-evident copy of the event log."""


@audit.command("verify")
@pass_session
def verify_chain(session: Session) -> None:
    """Walk the whole chain of hashes, and compute again that every run that needed an approval had it.

    Exit code 1 and the first wrong entry if it does not hold.
    """
    session.run(_verify(session))


async def _verify(session: Session) -> None:
    report = await (_verified_here(session) if session.server is None else _verified_there(session))
    if not report.holds:
        raise AuditBroken(report.broken or "", advice=report.advice or "")
    if session.out.as_json:
        approvals = {"starts": report.approved_starts, "unknown": report.unknown_starts}
        told = {"holds": True, "entries": report.entries, "seq": report.seq, "hash": report.hash}
        session.out.document({**told, "approvals": approvals})
        return
    session.out.line(f"The chain holds: {_entries(report.entries)} up to seq {report.seq}, hash {report.hash}")
    if report.approved_starts:
        session.out.line(f"Approvals computed again: {report.approved_starts}, each with its digest and quorum")
    if report.unknown_starts:
        session.out.line(f"Approvals that are older than this copy, and not computed again: {report.unknown_starts}")


async def _verified_here(session: Session) -> AuditReport:
    """With a bar that shows how far it is. Raises AuditBroken."""
    checked, proof, place = 0, Proof(), audit_place(session.settings)
    async with session.stores() as stores, current_copy(stores.events, place) as copy:
        with progress(session, "Verifying") as bar:
            async for checked, total in verify(stores.events, copy, proof):
                bar.move(checked, total)
        head = await copy.head()
    return AuditReport(
        holds=True,
        entries=checked,
        seq=head.seq,
        hash=head.hash,
        approved_starts=proof.starts,
        unknown_starts=proof.unknown,
    )


async def _verified_there(session: Session) -> AuditReport:
    async with session.api(timeout_s=_LONGEST_S) as api:
        return await api.verify_audit()


@audit.command("export")
@click.option("--to", "file", type=click.File("wb"), default="-", help="Where to write; stdout otherwise.")
@click.option("--after", type=PLACE, default=0, help="Only entries behind this seq.")
@pass_session
def export(session: Session, file: IO[bytes], after: int) -> None:
    """Write all entries as JSON lines, each with its hash, for keeping elsewhere."""
    session.run(_export(session, file, after))


async def _export(session: Session, file: IO[bytes], after: int) -> None:
    async with session.api() as api:
        content = await api.export_audit(after=after)
        with progress(session, "Exporting") as bar:
            async for piece in api.pieces(content):
                file.write(piece)
                bar.advance(piece.count(b"\n"))
    file.flush()


@audit.command("begin")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def begin_anew(session: Session, yes: bool) -> None:
    """Begin a new audit copy after the old one was lost, or moved away because an older backup was restored.

    It has what is still in the event log. Stop the workers first. Where there is a copy already, this is refused.
    """
    session.run(_begin(session, yes))


async def _begin(session: Session, yes: bool) -> None:
    async with session.stores() as stores:
        confirm(session, "A new audit copy would begin; what was trimmed from the event log is not in it.", yes=yes)
        async with open_audit(session.settings.store.url, session.settings.events.audit_url) as copy:
            head = await begin(stores.events, copy)
            entries = await copy.count()
    if session.out.as_json:
        session.out.document({"entries": entries, "seq": head.seq, "hash": head.hash})
    else:
        session.out.line(f"A new chain begins: {_entries(entries)} up to seq {head.seq}, hash {head.hash}")


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
