"""The commands `ade audit` and `ade events`."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import IO, TYPE_CHECKING

import click

from ade.approvals.proof import ApprovalProof
from ade.cli.command import group
from ade.cli.ids import find_id
from ade.cli.interaction import confirm, progress
from ade.cli.parameters import PLACE, local, local_payload
from ade.composition.audit import audit_place, open_audit
from ade.errors import AuditBroken, UnknownTask
from ade.events.audit_chain import AuditReport
from ade.events.audit_copy import begin, current_copy, verify
from ade.events.filters import compile_filter, parse_filter
from ade.events.model import Event

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


_LONGEST_S = 3_600.0  # timeout while a server verifies a long chain


@group("audit")
def audit() -> None:
    """Verify, export, and start the tamper-evident copy of the event log."""


@audit.command("verify")
async def verify_chain(session: "Session") -> None:
    """Verify the whole hash chain, and that every run that needed an approval had it.

    If it is broken, the exit code is 1, and the first invalid entry is shown.
    """
    report = await (_verified_here(session) if session.server is None else _verified_there(session))
    if not report.holds:
        raise AuditBroken(report.broken or "", advice=report.advice or "")
    if session.out.as_json:
        session.out.document(report)
        return
    session.out.line(f"The chain is valid: {_entries(report.entries)} up to seq {report.seq}, hash {report.hash}")
    if report.approved_starts:
        session.out.line(f"Approvals verified: {report.approved_starts}, each with its digest and quorum")
    if report.unknown_starts:
        session.out.line(f"Approvals that are older than this copy, and not verified: {report.unknown_starts}")


async def _verified_here(session: "Session") -> AuditReport:
    """Verify the local copy with a progress bar. Raises AuditBroken."""
    checked, proof, place = 0, ApprovalProof(), audit_place(session.settings)
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


async def _verified_there(session: "Session") -> AuditReport:
    async with session.api(timeout_s=_LONGEST_S) as api:
        return await api.verify_audit()


@audit.command("export")
@click.option("--to", "file", type=click.File("wb"), default="-", help="The file to write; stdout by default.")
@click.option("--after", type=PLACE, default=0, help="Only entries after this seq.")
async def export(session: "Session", file: IO[bytes], after: int) -> None:
    """Write all entries as JSON lines, each with its hash, to store them elsewhere."""
    async with session.api() as api:
        content = await api.export_audit(after=after)
        with progress(session, "Exporting") as bar:
            async for piece in api.pieces(content):
                file.write(piece)
                bar.advance(piece.count(b"\n"))
    file.flush()


@audit.command("begin")
@click.option("--yes", is_flag=True, help="Do not ask.")
async def restart_chain(session: "Session", yes: bool) -> None:
    """Start a new audit copy after the old one was lost, or moved away because an older backup was restored.

    It contains what is still in the event log. Stop the workers first. Rejected if a copy exists.
    """
    async with session.stores() as stores:
        confirm(
            session, "This starts a new audit copy without the events that were trimmed from the event log.", yes=yes
        )
        async with open_audit(session.settings.store.url, session.settings.events.audit_url) as copy:
            head = await begin(stores.events, copy)
            entries = await copy.count()
    if session.out.as_json:
        session.out.document({"entries": entries, "seq": head.seq, "hash": head.hash})
    else:
        session.out.line(f"A new chain was started: {_entries(entries)} up to seq {head.seq}, hash {head.hash}")


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


_PAGE = 500
_SHOWN_AT_FIRST = 20


@group("events")
def events() -> None:
    """Read the event log, ordered by seq."""


@events.command("tail", reads=lambda follow, **_: not follow)
@click.option("-f", "--follow", is_flag=True, help="Follow new events until Ctrl-C.")
@click.option("--task", "task_id", metavar="ID", help="Only events of this task, from its start.")
@click.option("--after", type=PLACE, metavar="SEQ", help="Start after this seq; 0 for all events.")
@click.option("--type", "types", multiple=True, help="Only this type, such as task.failed or task.*; repeatable.")
async def tail(
    session: "Session", follow: bool, task_id: str | None, after: int | None, types: tuple[str, ...]
) -> None:
    """Print the newest events, or those after a seq."""
    async with session.api() as api:
        task_id = None if task_id is None else await find_id(api, task_id)
        begin = await _start(api, after, task_id)
        newest = (await api.list_events(limit=1)).items if follow else ()  # first, to miss none
        last = await _print_past(session, api, task_id, begin, types)
        if not follow:
            return
        seen = max(last, newest[-1].seq if newest else 0)  # everything up to here was printed
        tasks = () if task_id is None else (task_id,)
        async for item in api.follow_events(after=seen, types=types, tasks=tasks):
            if isinstance(item, Event):
                _print_event(session, item)
            else:
                session.out.note(f"Events after {item.after} and up to {item.until} may be missing: they were trimmed.")


async def _start(api: "Client", after: int | None, task_id: str | None) -> int:
    if after is not None:
        return after
    newest = () if task_id is not None else (await api.list_events(limit=_SHOWN_AT_FIRST)).items
    return newest[0].seq - 1 if newest else 0


async def _print_past(
    session: "Session", api: "Client", task_id: str | None, after: int, types: tuple[str, ...]
) -> int:
    """Print stored events and return the seq of the last one."""
    last = after
    async for event in _past(api, task_id, after, types):
        _print_event(session, event)
        last = event.seq
    return last


async def _past(api: "Client", task_id: str | None, after: int, types: tuple[str, ...]) -> AsyncGenerator[Event, None]:
    if task_id is not None and await _is_kept(api, task_id):
        is_wanted = compile_filter(parse_filter(("type", each) for each in types))
        async for event in api.every(partial(api.list_task_events, task_id), after=after, limit=_PAGE):
            if is_wanted(event):
                yield event
        return
    tasks = () if task_id is None else (task_id,)
    async for event in api.every(api.list_events, type=types, task=tasks, after=after, limit=_PAGE):
        yield event


async def _is_kept(api: "Client", task_id: str) -> bool:
    """Return whether the task still exists. Events of a pruned task stay in the log and must be searched for."""
    try:
        await api.get_task(task_id)
    except UnknownTask:
        return False
    return True


def _print_event(session: "Session", event: Event) -> None:
    if session.out.as_json:
        session.out.record(event)
        return
    facts = " ".join(f"{name}={value}" for name, value in local_payload(event).items() if name != "run_id")
    by = f" by {event.actor}" if event.actor else ""
    session.out.line(f"{event.seq:>8}  {local(event.at)}  {event.type:<21}  {event.task_id or '-':<36}  {facts}{by}")
