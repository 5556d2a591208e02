"""Health checks and their findings, for `ade doctor`, `/readyz`, and `GET /api/v1/health`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum, auto

from msgspec import Struct

from ade import VERSION
from ade.accounts.authorization import reads_as_before
from ade.accounts.tokens import list_tokens
from ade.accounts.users import list_users
from ade.errors import AdeError, AuditBroken, StoreError, StoreTooNew, StoreTooOld
from ade.events.alerts import alerts_of, find_alerts
from ade.events.audit_copy import CURSOR, AuditLocation, read_chain_head
from ade.events.feed import events_after
from ade.stores.ports import EventLog, Stores
from ade.tasks.lifecycle import Status
from ade.tasks.model import Worker
from ade.tasks.overview import Overview, overview
from ade.tasks.reasons import listed, short_span
from ade.worker.views import WorkersLiveness, WorkerView, view_workers

FAR_BEHIND = 10_000  # a log reader that is more events behind is a warning
LONG_WAIT_MS = 60_000
_ALIVE = frozenset({WorkersLiveness.WORKING, WorkersLiveness.DRAINING})

Lag = Callable[[EventLog, int, int], Awaitable[int]]  # `events_after` of ade.events.feed: (log, seq, at_most)


class FindingsVerdict(StrEnum):
    """How serious a finding is."""

    OK = auto()
    WARNING = auto()  # deserves attention
    PROBLEM = auto()  # something is wrong


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `advice` is what helps at a command line."""

    check: str
    verdict: FindingsVerdict
    sentence: str
    advice: str | None = None


def ok(check: str, sentence: str, advice: str | None = None) -> Finding:
    """Return a finding that nothing is wrong."""
    return Finding(check=check, verdict=FindingsVerdict.OK, sentence=sentence, advice=advice)


def warning(check: str, sentence: str, advice: str | None = None) -> Finding:
    """Return a finding that deserves attention."""
    return Finding(check=check, verdict=FindingsVerdict.WARNING, sentence=sentence, advice=advice)


def problem(check: str, sentence: str, advice: str | None = None) -> Finding:
    """Return a finding that something is wrong."""
    return Finding(check=check, verdict=FindingsVerdict.PROBLEM, sentence=sentence, advice=advice)


async def of_store(stores: Stores, *, thorough: bool = True) -> AsyncIterator[Finding]:
    """Yield findings about the store itself."""
    health = await stores.maintenance.health(thorough=thorough)
    facts = ", ".join(f"{name} {value}" for name, value in health.facts.items())
    damaged = health.facts.get("quick_check", "ok") != "ok"
    yield (problem if damaged else ok)("store", facts)
    for sentence in health.warnings:
        yield (problem if damaged and "damaged" in sentence else warning)("store", sentence)


async def of_invariants(stores: Stores) -> AsyncIterator[Finding]:
    """Yield a problem for each violated invariant. Reads the whole store."""
    broken = await stores.maintenance.check_invariants()
    for sentence in broken:
        yield problem("invariants", sentence)
    if not broken:
        yield ok("invariants", "all hold")


async def of_workers(stores: Stores) -> AsyncIterator[Finding]:
    """Yield findings about the workers."""
    for finding in workers_findings(await overview(stores)):
        yield finding


def workers_findings(seen: Overview) -> list[Finding]:
    """Return a finding for each stuck or lost worker, and for pending tasks without a worker."""
    found = []
    alive = [worker for worker in seen.workers if worker.liveness in _ALIVE and not worker.only_delivers]
    for worker in seen.workers:
        if worker.liveness is WorkersLiveness.STUCK:
            sentence = (
                f"{worker.worker.id} renews its leases, but its loop has not run for {short_span(worker.stuck_ms)}"
            )
            found.append(problem("workers", f"{sentence}; something blocks its event loop"))
        elif worker.liveness is WorkersLiveness.SILENT:
            sentence = f"{worker.worker.id} has been silent for {short_span(worker.silent_ms)}"
            found.append(warning("workers", f"{sentence}; others take over what it held"))
    waiting = seen.total(Status.PENDING)
    if not alive and waiting:
        sentence = f"none is running, and {waiting} tasks are pending"
        return [*found, warning("workers", sentence, "start one with `ade worker`")]
    return [*found, ok("workers", f"{len(alive)} running")]


async def of_alerts(stores: Stores) -> AsyncIterator[Finding]:
    """Yield a warning for each alert."""
    for alert in await find_alerts(stores):
        yield warning("alerts", alert.sentence, alert.advice)


async def of_queues(stores: Stores) -> AsyncIterator[Finding]:
    """Yield findings about the queues."""
    for finding in queues_findings(await overview(stores)):
        yield finding


def queues_findings(seen: Overview) -> list[Finding]:
    """Return findings about paused queues, long waits, and dead letters."""
    found = []
    for queue in seen.queues:
        waits = queue.oldest_ready_ms or 0
        if queue.paused and queue.unfinished:
            found.append(warning("queues", f"{queue.name} is paused with {queue.unfinished} unfinished tasks"))
        elif waits > LONG_WAIT_MS:
            sentence = f"the oldest ready task of {queue.name} has been waiting for {short_span(waits)}"
            found.append(warning("queues", sentence))
    if seen.dead_letters:
        found.append(warning("queues", f"dead letters: {seen.dead_letters}", "`ade dlq list` groups them"))
    return [*found, ok("queues", f"{len(seen.queues)} known")]


async def of_readers(stores: Stores, lag: Lag) -> AsyncIterator[Finding]:
    """Yield a warning for each reader of the event log that is far behind."""
    behind = {
        name: await lag(stores.events, seq, FAR_BEHIND + 1) for name, seq in (await stores.events.cursors()).items()
    }
    for name, count in behind.items():
        if count > FAR_BEHIND:
            sentence = f"the reader {name!r} is more than {FAR_BEHIND} events behind; nothing is trimmed past it"
            yield warning("event log", sentence)
    told = ", ".join(f"{name} is {counted(count)} behind" for name, count in behind.items()) or "no readers"
    yield ok("event log", f"it goes up to seq {await stores.events.last_seq()}, {told}")


async def of_accounts(stores: Stores) -> AsyncIterator[Finding]:
    """Yield a warning if agents or workers read everything because an older version created their accounts."""
    wide = [user.id for user in await list_users(stores) if user.is_active and reads_as_before(user)]
    if wide:
        yield warning(
            "accounts",
            f"{listed(sorted(wide))}: agents and workers that read the tasks of everyone",
            "`ade users change NAME --reads own` limits one to its own tasks and queues",
        )


def counted(count: int) -> str:
    """Return the count as text, capped at FAR_BEHIND."""
    return str(count) if count <= FAR_BEHIND else f"more than {FAR_BEHIND}"


_LATE_MS = 60_000  # a maintenance job that is overdue for longer is reported


class Readiness(Struct, frozen=True, kw_only=True):
    """`/readyz`: ready when every check is well. The sentences name no place and no secret: anybody may ask."""

    is_ready: bool
    checks: dict[str, str]  # `ok`, or what is wrong


class LoopView(Struct, frozen=True, kw_only=True):
    """The consume loop of a worker."""

    worker: str
    liveness: WorkersLiveness
    running: int
    went_round_ms: int  # ago


class HealthReport(Struct, frozen=True, kw_only=True):
    """`GET /api/v1/health`: `verdict` is the worst of all findings."""

    at: int
    version: str
    verdict: FindingsVerdict
    store: dict[str, object]  # versions, sizes, settings in force
    loops: list[LoopView]
    overdue_ms: dict[str, int]  # for how long each duty has been overdue; 0: it is being done
    findings: list[Finding]


async def readiness(
    stores: Stores | None, *, timeout_s: float, is_own: Callable[[Worker], bool] = lambda worker: False
) -> Readiness:
    """Check readiness with a time limit: the store is the one that was opened, and can be read and written.

    `stores` is None before the store is open, which includes its migrations. `is_own` selects the workers of this
    process, whose loops must be running.
    """
    if stores is None:
        return Readiness(is_ready=False, checks={"store": "not open yet", "migrations": "not done yet"})
    checks = {"store": "ok", "migrations": "ok", "loops": "ok"}
    try:
        async with asyncio.timeout(timeout_s):
            await stores.maintenance.check_writable()
            views = await view_workers(stores)
    except TimeoutError:
        checks |= {"store": f"did not answer within {timeout_s:g} s", "migrations": "not known", "loops": "not known"}
    except (StoreTooNew, StoreTooOld) as error:
        checks |= {"store": f"cannot be used ({error.code})", "migrations": error.code, "loops": "not known"}
    except AdeError as error:
        checks |= {"store": f"cannot be used ({error.code})", "migrations": "not known", "loops": "not known"}
    else:
        still = [view.worker.id for view in views if view.liveness is WorkersLiveness.STUCK and is_own(view.worker)]
        if still:
            checks["loops"] = f"{len(still)} of this process are stuck"
    return Readiness(is_ready=all(said == "ok" for said in checks.values()), checks=checks)


async def health(stores: Stores, lag: Lag, *, timeout_s: float) -> HealthReport:
    """Run the checks of `ade doctor`, except the slow ones: invariants and the whole audit chain.

    Raises StoreUnavailable and other store errors. A check that exceeds `timeout_s` is reported as a problem.
    """
    findings: list[Finding] = []
    facts: dict[str, object] = {}
    loops: list[LoopView] = []
    jobs: dict[str, int] = {}
    try:
        async with asyncio.timeout(timeout_s):
            about = await stores.maintenance.health(thorough=False)
            facts = about.facts
            findings += [warning("store", sentence) for sentence in about.warnings] or [ok("store", "open")]
            seen = await overview(stores)
            loops = [_loop(view) for view in seen.workers]
            findings += [*workers_findings(seen), *queues_findings(seen)]
            alerts = alerts_of(seen.workers, seen.without_worker, await list_tokens(stores), now=seen.at)
            findings += [warning("alerts", alert.sentence, alert.advice) for alert in alerts]
            findings += [finding async for finding in of_readers(stores, lag)]
            findings += [finding async for finding in of_accounts(stores)]
            jobs = await _overdue(stores)
            findings += [finding async for finding in _of_duties(jobs)]
    except TimeoutError:
        findings.append(problem("store", f"it did not answer everything within {timeout_s:g} s"))
    worst = max((finding.verdict for finding in findings), key=list(FindingsVerdict).index)
    return HealthReport(
        at=stores.clock.now(),
        version=VERSION,
        verdict=worst,
        store=facts,
        loops=loops,
        overdue_ms=jobs,
        findings=findings,
    )


def _loop(view: WorkerView) -> LoopView:
    running = view.worker.running
    return LoopView(worker=view.worker.id, liveness=view.liveness, running=running, went_round_ms=view.stuck_ms)


async def _overdue(stores: Stores) -> dict[str, int]:
    steady = stores.clock.steady()
    return {duty: max(steady - until, 0) for duty, until in (await stores.sweeps.jobs()).items()}


async def _of_duties(jobs: dict[str, int]) -> AsyncIterator[Finding]:
    late = {duty: ms for duty, ms in jobs.items() if ms > _LATE_MS}
    if late:
        named = ", ".join(f"{duty} for {short_span(ms)}" for duty, ms in late.items())
        yield warning("duties", f"no process runs {named}; every worker does", "so does `ade sweep`")
    else:
        yield ok("duties", f"{len(jobs)} are being done" if jobs else "none was done yet")


async def of_audit(log: EventLog, place: AuditLocation) -> Finding:
    """Return a finding about the end of the audit copy; verifying the whole chain would take too long."""
    reached = (await log.cursors()).get(CURSOR, 0)
    if not place.exists():
        if reached:
            return problem(
                "audit", f"the audit file is missing; it had reached entry {reached}", "see `ade audit verify`"
            )
        return ok("audit", "nothing was copied yet")
    try:
        async with place.open() as copy:
            head = await read_chain_head(log, copy)
            behind = await events_after(log, head.seq, FAR_BEHIND + 1)
    except (AuditBroken, StoreError) as error:
        return problem("audit", error.detail, "see `ade audit verify`")
    return ok("audit", f"its end is valid, {counted(behind)} behind", "`ade audit verify` checks all of it")


class ServingLiveness(Struct, frozen=True, kw_only=True):
    """The process answers, and nothing else is said with that."""

    alive: bool
    version: str


class ProblemDescription(Struct, frozen=True, kw_only=True):
    """What a problem's code stands for."""

    code: str
    status: int
    title: str
    detail: str
    advice: str | None = None  # what helps at a command line
