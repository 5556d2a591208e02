"""Whether a server can do its work, for probes; and how everything is, for people who operate it."""

import asyncio
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from ade.core.errors import AdeError
from ade.core.records import Worker
from ade.insight.findings import (
    Finding,
    Lag,
    Verdict,
    of_readers,
    ok,
    problem,
    queues_findings,
    warning,
    workers_findings,
)
from ade.insight.overview import overview
from ade.insight.reasons import short_span
from ade.insight.workers import Liveness, WorkerView, view_workers
from ade.ports import Stores
from ade.version import VERSION

_LATE_MS = 60_000  # a duty that nobody has taken for so long after it was due is not done


class Readiness(Struct, frozen=True, kw_only=True):
    """`/readyz`: ready when every check is well. The sentences name no place and no secret: anybody may ask."""

    is_ready: bool
    checks: dict[str, str]  # `ok`, or what is wrong


class LoopView(Struct, frozen=True, kw_only=True):
    """The consume loop of a worker."""

    worker: str
    liveness: Liveness
    running: int
    went_round_ms: int  # ago


class HealthReport(Struct, frozen=True, kw_only=True):
    """`GET /api/v1/health`: `verdict` is the worst of all findings."""

    at: int
    version: str
    verdict: Verdict
    store: dict[str, object]  # versions, sizes, settings in force
    loops: list[LoopView]
    overdue_ms: dict[str, int]  # for how long each duty has been overdue; 0: it is being done
    findings: list[Finding]


async def readiness(
    stores: Stores | None, *, timeout_s: float, is_own: Callable[[Worker], bool] = lambda worker: False
) -> Readiness:
    """A cheap read with a time limit. `stores` is None before the store is open, which includes its migrations;
    `is_own` tells the workers in this process, whose loops must go round."""
    if stores is None:
        return Readiness(is_ready=False, checks={"store": "not open yet", "migrations": "not done yet"})
    checks = {"store": "ok", "migrations": "ok", "loops": "ok"}
    try:
        async with asyncio.timeout(timeout_s):
            views = await view_workers(stores)
    except TimeoutError:
        checks |= {"store": f"did not answer within {timeout_s:g} s", "migrations": "not known", "loops": "not known"}
    except AdeError as error:
        checks |= {"store": f"cannot be used ({error.code})", "migrations": "not known", "loops": "not known"}
    else:
        still = [view.worker.id for view in views if view.liveness is Liveness.STUCK and is_own(view.worker)]
        if still:
            checks["loops"] = f"{len(still)} of this process stand still"
    return Readiness(is_ready=all(said == "ok" for said in checks.values()), checks=checks)


async def health(stores: Stores, lag: Lag, *, timeout_s: float) -> HealthReport:
    """What `ade doctor` looks at, but for what takes longer the more there is: invariants and the audit copy.

    Raises StoreUnavailable and the like; what takes longer than `timeout_s` is told as a problem.
    """
    findings: list[Finding] = []
    facts: dict[str, object] = {}
    loops: list[LoopView] = []
    duties: dict[str, int] = {}
    try:
        async with asyncio.timeout(timeout_s):
            about = await stores.upkeep.health(thorough=False)
            facts = about.facts
            findings += [warning("store", sentence) for sentence in about.warnings] or [ok("store", "open")]
            seen = await overview(stores)
            loops = [_loop(view) for view in seen.workers]
            findings += [*workers_findings(seen), *queues_findings(seen)]
            findings += [finding async for finding in of_readers(stores, lag)]
            duties = await _overdue(stores)
            findings += [finding async for finding in _of_duties(duties)]
    except TimeoutError:
        findings.append(problem("store", f"it did not answer everything within {timeout_s:g} s"))
    worst = max((finding.verdict for finding in findings), key=list(Verdict).index)
    return HealthReport(
        at=stores.clock.now(),
        version=VERSION,
        verdict=worst,
        store=facts,
        loops=loops,
        overdue_ms=duties,
        findings=findings,
    )


def _loop(view: WorkerView) -> LoopView:
    running = view.worker.running
    return LoopView(worker=view.worker.id, liveness=view.liveness, running=running, went_round_ms=view.stuck_ms)


async def _overdue(stores: Stores) -> dict[str, int]:
    steady = stores.clock.steady()
    return {duty: max(steady - until, 0) for duty, until in (await stores.sweeps.duties()).items()}


async def _of_duties(duties: dict[str, int]) -> AsyncIterator[Finding]:
    late = {duty: ms for duty, ms in duties.items() if ms > _LATE_MS}
    if late:
        named = ", ".join(f"{duty} for {short_span(ms)}" for duty, ms in late.items())
        yield warning("duties", f"nobody does {named}; a worker does them all", "so does `ade sweep`")
    else:
        yield ok("duties", f"{len(duties)} are being done" if duties else "none was done yet")
