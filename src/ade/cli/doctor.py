"""The `ade doctor` command: check settings, store, workers, and invariants."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

from ade.cli.command import command
from ade.cli.exit_codes import ExitCode
from ade.cli.output import Cell, Row
from ade.composition.audit import audit_place
from ade.errors import StoreCorrupt, with_advice
from ade.events.feed import events_after
from ade.server.health import (
    Finding,
    FindingsVerdict,
    of_accounts,
    of_alerts,
    of_audit,
    of_invariants,
    of_queues,
    of_readers,
    of_store,
    of_workers,
    ok,
    problem,
)
from ade.settings import DEFAULT
from ade.stores.ports import Stores

if TYPE_CHECKING:
    from ade.cli.session import Session


_LONGEST_S = 600.0  # timeout for all invariants of a large store


@command("doctor")
async def doctor(session: "Session") -> int:
    """Check settings, store, workers, readers of the event log, the end of the audit copy, and every invariant.

    Exit code 0 when there is no problem, 1 when there is one. A store that cannot be opened is an error of its own.
    Through a server it is the server's store that is checked.
    """
    found = await (_of_store(session) if session.server is None else _of_server(session, session.server.url))
    findings = [_settings(session), *found]
    problems = [finding for finding in findings if finding.verdict is FindingsVerdict.PROBLEM]
    if session.out.as_json:
        session.out.document({"ok": not problems, "findings": findings})
    else:
        _print(session, findings)
    return ExitCode.PROBLEM if problems else ExitCode.OK


def _print(session: "Session", findings: list[Finding]) -> None:
    styles = {"ok": "green", "warning": "bold yellow", "problem": "bold red"}
    rows: list[Row] = [
        (Cell(each.verdict, styles[each.verdict]), each.check, with_advice(each.sentence, each.advice))
        for each in findings
    ]
    session.out.table(("verdict", "check", "finding"), rows)


def _settings(session: "Session") -> Finding:
    loaded = session.loaded
    changed = [name for name, origin in loaded.origins.items() if origin != DEFAULT]
    told = f"; not default: {', '.join(changed)}" if changed else ", all default"
    return ok("settings", f"valid{told}")


async def _of_store(session: "Session") -> list[Finding]:
    async with session.stores() as stores:
        findings = [finding async for finding in _examine(stores)]
        try:
            findings.append(await of_audit(stores.events, audit_place(session.settings)))
        except StoreCorrupt as error:
            findings.append(problem("audit", error.detail))
    return findings


async def _of_server(session: "Session", url: str) -> list[Finding]:
    """Return the findings of the server about its own store; the settings checked are those of this machine."""
    async with session.api(timeout_s=_LONGEST_S) as api:
        report = await api.get_health(thorough=True)
    return [ok("server", f"{url} answers, version {report.version}"), *report.findings]


async def _examine(stores: Stores) -> AsyncIterator[Finding]:
    parts: dict[str, Callable[[Stores], AsyncIterator[Finding]]] = {
        "store": of_store,
        "invariants": of_invariants,
        "workers": of_workers,
        "alerts": of_alerts,
        "queues": of_queues,
        "accounts": of_accounts,
        "event log": partial(of_readers, lag=events_after),
    }
    for name, part in parts.items():
        try:
            async for finding in part(stores):
                yield finding
        except StoreCorrupt as error:  # the other parts may be readable
            yield problem(name, error.detail)
