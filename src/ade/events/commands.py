"""The commands `ade audit` and `ade events`."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import IO, TYPE_CHECKING

import click
from msgspec import structs

from ade.approvals.audit_check import audit_report
from ade.cli.command import group
from ade.cli.ids import find_id
from ade.cli.interaction import confirm, progress
from ade.cli.parameters import PLACE, local, local_payload
from ade.composition.audit import audit_place, open_audit
from ade.errors import AuditBroken, UnknownTask
from ade.events.audit_anchors import (
    Anchor,
    append_anchor,
    check_anchors,
    copied_hash,
    read_anchors,
    read_key,
    signed_anchor,
)
from ade.events.audit_chain import AuditHead, AuditReport
from ade.events.audit_copy import begin, current_copy
from ade.events.filters import compile_filter, parse_filter
from ade.events.model import Event
from ade.settings import SettingsError

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


_LONGEST_S = 3_600.0  # timeout while a server verifies a long chain


_key_file = click.option(
    "--key-file", metavar="FILE", help="The key that signs anchors; by default that of events.anchor_key_file."
)


@group("audit")
def audit() -> None:
    """Verify, export, and start the tamper-evident copy of the event log."""


@audit.command("verify")
@click.option(
    "--anchors", "anchor_file", metavar="FILE", help="Check that the chain contains the anchors of this file."
)
@_key_file
async def verify_chain(session: "Session", anchor_file: str | None, key_file: str | None) -> None:
    """Verify the whole hash chain, that every run that needed an approval had it, and that the records match the log.

    Compared are governed tasks (arguments, approvals, votes, results), accounts, delegations, and versions of the
    rulebook. Each difference is one line. If the chain is broken or something differs, the exit code is 1.
    """
    anchors = _anchors(session, anchor_file, key_file)
    report = await (_verified_here if session.server is None else _verified_there)(session, anchors)
    if not report.holds:
        for line in report.differences:
            session.out.line(line)
        raise AuditBroken(report.broken or "", advice=report.advice or "")
    if session.out.as_json:
        session.out.document(report)
        return
    session.out.line(f"The chain is valid: {_entries(report.entries)} up to seq {report.seq}, hash {report.hash}")
    if report.begins_after:
        session.out.line(f"Entries up to seq {report.begins_after} were rotated out, and are not verified")
    session.out.line(f"Records that match the log: {report.records}")
    if report.anchors:
        session.out.line(f"Anchors that the chain contains: {report.anchors}")
    if report.approved_starts:
        session.out.line(f"Approvals verified: {report.approved_starts}, each with its digest and quorum")
    if report.unknown_starts:
        session.out.line(f"Approvals that are older than this copy, and not verified: {report.unknown_starts}")


def _anchors(session: "Session", file: str | None, key_file: str | None) -> list[Anchor]:
    """Read the anchors before the long verification, so that a wrong file is reported immediately."""
    if file is None:
        return []
    return read_anchors(file, read_key(key_file or session.settings.events.anchor_key_file))


async def _verified_here(session: "Session", anchors: list[Anchor]) -> AuditReport:
    """Verify the local copy with a progress bar. Raises AuditBroken."""
    place = audit_place(session.settings)
    async with session.stores() as stores, current_copy(stores.events, place) as copy:
        with progress(session, "Verifying") as bar:
            report = await audit_report(stores, copy, bar.move)
        return await _with_anchors(report, anchors, partial(copied_hash, copy))


async def _with_anchors(
    report: AuditReport, anchors: list[Anchor], hash_at: Callable[[int], Awaitable[str | None]]
) -> AuditReport:
    if not report.holds:
        return report
    anchors = [anchor for anchor in anchors if anchor.seq > report.begins_after]
    await check_anchors(anchors, hash_at)
    return structs.replace(report, anchors=len(anchors))


async def _verified_there(session: "Session", anchors: list[Anchor]) -> AuditReport:
    async with session.api(timeout_s=_LONGEST_S) as api:

        async def hash_at(seq: int) -> str | None:
            page = await api.list_audit_entries(after=seq - 1, limit=1)
            return page.items[0].hash if page.items and page.items[0].seq == seq else None

        return await _with_anchors(await api.verify_audit(), anchors, hash_at)


@audit.command("anchor")
@click.option("--file", metavar="FILE", help="The file to append to; by default that of events.anchor_file.")
@_key_file
async def anchor_head(session: "Session", file: str | None, key_file: str | None) -> None:
    """Append the head of the chain to a file, as a signed line.

    Keep the file where the owner of the store cannot change it. `ade audit verify --anchors FILE` checks that the chain
    still contains every head in it.
    """
    known = session.settings.events
    file, key = file or known.anchor_file, read_key(key_file or known.anchor_key_file)
    if file is None:
        raise SettingsError("name the file of the anchors by events.anchor_file", names=("events.anchor_file",))
    async with session.api() as api:
        newest = (await api.list_audit_entries(limit=1)).items
    if not newest:
        raise AuditBroken("the audit copy is empty, so there is no head to anchor")
    head = AuditHead(newest[0].seq, newest[0].hash)
    anchor = signed_anchor(head, key, at=int(time.time() * 1000))
    append_anchor(file, anchor)
    if session.out.as_json:
        session.out.document(anchor)
    else:
        session.out.line(f"Anchored in {file}: seq {head.seq}, hash {head.hash}")


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
@click.option("--lock", "locks", multiple=True, metavar="NAME", help="Only events of this lock; repeatable.")
async def tail(
    session: "Session",
    follow: bool,
    task_id: str | None,
    after: int | None,
    types: tuple[str, ...],
    locks: tuple[str, ...],
) -> None:
    """Print the newest events, or those after a seq."""
    async with session.api() as api:
        task_id = None if task_id is None else await find_id(api, task_id)
        begin = await _start(api, after, task_id, locks)
        newest = (await api.list_events(limit=1)).items if follow else ()  # first, to miss none
        last = await _print_past(session, api, task_id, begin, types, locks)
        if not follow:
            return
        seen = max(last, newest[-1].seq if newest else 0)  # everything up to here was printed
        tasks = () if task_id is None else (task_id,)
        async for item in api.follow_events(after=seen, types=types, tasks=tasks, locks=locks):
            if isinstance(item, Event):
                _print_event(session, item)
            else:
                session.out.note(f"Events after {item.after} and up to {item.until} may be missing: they were trimmed.")


async def _start(api: "Client", after: int | None, task_id: str | None, locks: tuple[str, ...]) -> int:
    if after is not None:
        return after
    newest = () if task_id is not None else (await api.list_events(limit=_SHOWN_AT_FIRST, lock=locks)).items
    return newest[0].seq - 1 if newest else 0


async def _print_past(
    session: "Session",
    api: "Client",
    task_id: str | None,
    after: int,
    types: tuple[str, ...],
    locks: tuple[str, ...],
) -> int:
    """Print stored events and return the seq of the last one."""
    last = after
    async for event in _past(api, task_id, after, types, locks):
        _print_event(session, event)
        last = event.seq
    return last


async def _past(
    api: "Client", task_id: str | None, after: int, types: tuple[str, ...], locks: tuple[str, ...]
) -> AsyncGenerator[Event, None]:
    if task_id is not None and await _is_kept(api, task_id):
        is_wanted = compile_filter(
            parse_filter([*(("type", each) for each in types), *(("lock", each) for each in locks)])
        )
        async for event in api.every(partial(api.list_task_events, task_id), after=after, limit=_PAGE):
            if is_wanted(event):
                yield event
        return
    tasks = () if task_id is None else (task_id,)
    async for event in api.every(api.list_events, type=types, task=tasks, lock=locks, after=after, limit=_PAGE):
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
