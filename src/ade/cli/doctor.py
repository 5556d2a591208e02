"""`ade doctor`: is everything as it should be?"""

from collections.abc import AsyncIterator

from msgspec import Struct

from ade.cli.exit_codes import ExitCode
from ade.cli.output import Cell, Row
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import short_span
from ade.core.errors import AuditBroken, StoreError
from ade.core.lifecycle import Status
from ade.events.audit import CURSOR, look_at_end
from ade.events.lag import events_after
from ade.insight.overview import Overview, overview
from ade.insight.workers import Liveness
from ade.ports import Stores
from ade.settings import DEFAULT, Settings
from ade.wiring import audit_exists, open_audit

_FAR_BEHIND = 10_000  # events a reader of the log may be behind before that is a warning
_LONG_WAIT_MS = 60_000


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. A warning deserves attention; a problem makes the exit code 1."""

    check: str
    verdict: str  # ok, warning or problem
    sentence: str


def _ok(check: str, sentence: str) -> Finding:
    return Finding(check=check, verdict="ok", sentence=sentence)


def _warning(check: str, sentence: str) -> Finding:
    return Finding(check=check, verdict="warning", sentence=sentence)


def _problem(check: str, sentence: str) -> Finding:
    return Finding(check=check, verdict="problem", sentence=sentence)


@command("doctor")
@pass_session
def doctor(session: Session) -> int:
    """Check settings, store, workers, readers of the event log, the end of the audit copy, and every invariant.

    Exit code 0 when there is no problem, 1 when there is one. A store that cannot be opened is an error of its own.
    """
    return session.run(_doctor(session))


async def _doctor(session: Session) -> ExitCode:
    findings = [_settings(session)]
    async with session.stores() as stores:
        findings += [finding async for finding in _examine(stores)]
        findings.append(await _audit(session.settings, stores))
    problems = [finding for finding in findings if finding.verdict == "problem"]
    if session.out.as_json:
        session.out.document({"ok": not problems, "findings": findings})
    else:
        _print(session, findings)
    return ExitCode.PROBLEM if problems else ExitCode.OK


def _print(session: Session, findings: list[Finding]) -> None:
    styles = {"ok": "green", "warning": "bold yellow", "problem": "bold red"}
    rows: list[Row] = [
        (Cell(finding.verdict, styles[finding.verdict]), finding.check, finding.sentence) for finding in findings
    ]
    session.out.table(("verdict", "check", "finding"), rows)


def _settings(session: Session) -> Finding:
    loaded = session.loaded
    changed = [name for name, origin in loaded.origins.items() if origin != DEFAULT]
    told = f"; not default: {', '.join(changed)}" if changed else ", all default"
    return _ok("settings", f"valid{told}")


async def _examine(stores: Stores) -> AsyncIterator[Finding]:
    for part in (_store, _invariants, _workers, _queues, _readers):
        async for finding in part(stores):
            yield finding


async def _store(stores: Stores) -> AsyncIterator[Finding]:
    health = await stores.upkeep.health()
    facts = ", ".join(f"{name} {value}" for name, value in health.facts.items())
    damaged = health.facts.get("quick_check", "ok") != "ok"
    yield (_problem if damaged else _ok)("store", facts)
    for warning in health.warnings:
        yield (_problem if damaged and "damaged" in warning else _warning)("store", warning)


async def _invariants(stores: Stores) -> AsyncIterator[Finding]:
    broken = await stores.upkeep.check_invariants()
    for sentence in broken:
        yield _problem("invariants", sentence)
    if not broken:
        yield _ok("invariants", "all hold")


async def _workers(stores: Stores) -> AsyncIterator[Finding]:
    seen = await overview(stores)
    alive = [worker for worker in seen.workers if worker.liveness in (Liveness.WORKING, Liveness.DRAINING)]
    for worker in seen.workers:
        if worker.liveness is Liveness.STUCK:
            sentence = f"{worker.worker.id} renews its leases but has not gone round for {short_span(worker.stuck_ms)}"
            yield _problem("workers", f"{sentence}; something blocks its event loop")
        elif worker.liveness is Liveness.SILENT:
            sentence = f"{worker.worker.id} has been silent for {short_span(worker.silent_ms)}"
            yield _warning("workers", f"{sentence}; others take over what it held")
    waiting = seen.total(Status.PENDING)
    if not alive and waiting:
        yield _warning("workers", f"none is running, and {waiting} tasks are pending; start one with `ade worker`")
    else:
        yield _ok("workers", f"{len(alive)} running")


async def _queues(stores: Stores) -> AsyncIterator[Finding]:
    seen: Overview = await overview(stores)
    for queue in seen.queues:
        waits = queue.oldest_ready_ms or 0
        if queue.paused and queue.unfinished:
            yield _warning("queues", f"{queue.name} is paused with {queue.unfinished} unfinished tasks")
        elif waits > _LONG_WAIT_MS:
            yield _warning("queues", f"the oldest ready task of {queue.name} has been waiting for {short_span(waits)}")
    if seen.dead_letters:
        yield _warning("queues", f"dead letters: {seen.dead_letters}; `ade dlq list` groups them")
    yield _ok("queues", f"{len(seen.queues)} known")


async def _readers(stores: Stores) -> AsyncIterator[Finding]:
    behind = {
        name: await events_after(stores.events, seq, _FAR_BEHIND + 1)
        for name, seq in (await stores.events.cursors()).items()
    }
    for name, count in behind.items():
        if count > _FAR_BEHIND:
            sentence = f"the reader {name!r} is more than {_FAR_BEHIND} events behind; nothing is trimmed past it"
            yield _warning("event log", sentence)
    told = ", ".join(f"{name} is {_counted(count)} behind" for name, count in behind.items()) or "no readers"
    yield _ok("event log", f"it goes up to seq {await stores.events.last_seq()}, {told}")


def _counted(count: int) -> str:
    return str(count) if count <= _FAR_BEHIND else f"more than {_FAR_BEHIND}"


async def _audit(settings: Settings, stores: Stores) -> Finding:
    """Its end only; walking the whole chain takes its time."""
    place = settings.store.url, settings.events.audit_url
    reached = await stores.events.cursor(CURSOR)
    if not audit_exists(*place):
        if reached:
            return _problem("audit", f"the audit file is gone, and had reached entry {reached}; see `ade audit verify`")
        return _ok("audit", "nothing was copied yet")
    try:
        async with open_audit(*place) as copy:
            head = await look_at_end(stores.events, copy)
            behind = await events_after(stores.events, head.seq, _FAR_BEHIND + 1)
    except (AuditBroken, StoreError) as error:
        return _problem("audit", f"{error.detail}; see `ade audit verify`")
    return _ok("audit", f"its end holds, {_counted(behind)} behind; `ade audit verify` walks all of it")
