"""`ade audit`: the copy of the event log that shows tampering."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

import click
import msgspec

from ade.cli.confirming import confirm
from ade.cli.parsing import PLACE
from ade.cli.progress import progress
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.core.approvals.proof import Proof
from ade.events.audit import CURSOR, AuditCopy, begin, copy_events, cut_off, verify
from ade.ports import Stores
from ade.wiring import audit_exists, open_audit

_PAGE = 1_000


@group("audit")
def audit() -> None:
    """Verify, export and begin the tamper-evident copy of the event log."""


@asynccontextmanager
async def _opened(session: Session) -> "AsyncIterator[tuple[Stores, AuditCopy]]":
    """The copy, brought up to date with the log. One that is gone stays gone, so that it is noticed."""
    place = session.settings.store.url, session.settings.events.audit_url
    async with session.stores() as stores:
        reached = await stores.events.cursor(CURSOR)
        if reached and not audit_exists(*place):
            raise cut_off(0, reached)
        async with open_audit(*place) as copy:
            while await copy_events(stores.events, copy):
                pass
            yield stores, copy


@audit.command("verify")
@pass_session
def verify_chain(session: Session) -> None:
    """Walk the whole chain of hashes, and compute again that every run that needed an approval had it.

    Exit code 1 and the first wrong entry if it does not hold.
    """
    session.run(_verify(session))


async def _verify(session: Session) -> None:
    async with _opened(session) as (stores, copy):
        checked, proof = 0, Proof()
        with progress(session, "Verifying") as bar:
            async for checked, total in verify(stores.events, copy, proof):
                bar.move(checked, total)
        head = await copy.head()
    if session.out.as_json:
        approvals = {"starts": proof.starts, "unknown": proof.unknown}
        document = {"holds": True, "entries": checked, "seq": head.seq, "hash": head.hash, "approvals": approvals}
        session.out.document(document)
        return
    session.out.line(f"The chain holds: {_entries(checked)} up to seq {head.seq}, hash {head.hash}")
    if proof.starts:
        session.out.line(f"Approvals computed again: {proof.starts}, each with its digest and quorum")
    if proof.unknown:
        session.out.line(f"Approvals that are older than this copy, and not computed again: {proof.unknown}")


@audit.command("export")
@click.option("--to", "file", type=click.File("wb"), default="-", help="Where to write; stdout otherwise.")
@click.option("--after", type=PLACE, default=0, help="Only entries behind this seq.")
@pass_session
def export(session: Session, file: IO[bytes], after: int) -> None:
    """Write all entries as JSON lines, each with its hash, for keeping elsewhere."""
    session.run(_export(session, file, after))


async def _export(session: Session, file: IO[bytes], after: int) -> None:
    async with _opened(session) as (_, copy):
        with progress(session, "Exporting", await copy.count()) as bar:
            while entries := await copy.entries(after, _PAGE):
                for entry in entries:
                    line = {"seq": entry.seq, "hash": entry.hash, "event": msgspec.Raw(entry.body)}
                    file.write(msgspec.json.encode(line) + b"\n")
                after = entries[-1].seq
                bar.advance(len(entries))
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
