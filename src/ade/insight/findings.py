"""What was looked at, and what deserves attention: for `ade doctor` and for the health of a server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum, auto

from msgspec import Struct

from ade.core.lifecycle import Status
from ade.insight.overview import Overview, overview
from ade.insight.reasons import short_span
from ade.insight.workers import Liveness
from ade.ports import EventLog, Stores

FAR_BEHIND = 10_000  # events a reader of the log may be behind before that is a warning
LONG_WAIT_MS = 60_000
_ALIVE = frozenset({Liveness.WORKING, Liveness.DRAINING})

Lag = Callable[[EventLog, int, int], Awaitable[int]]  # `events_after` of ade.events.lag: (log, seq, at_most)


class Verdict(StrEnum):
    OK = auto()
    WARNING = auto()  # deserves attention
    PROBLEM = auto()  # something is wrong


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `advice` is what helps at a command line."""

    check: str
    verdict: Verdict
    sentence: str
    advice: str | None = None


def ok(check: str, sentence: str, advice: str | None = None) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, sentence=sentence, advice=advice)


def warning(check: str, sentence: str, advice: str | None = None) -> Finding:
    return Finding(check=check, verdict=Verdict.WARNING, sentence=sentence, advice=advice)


def problem(check: str, sentence: str, advice: str | None = None) -> Finding:
    return Finding(check=check, verdict=Verdict.PROBLEM, sentence=sentence, advice=advice)


async def of_store(stores: Stores, *, thorough: bool = True) -> AsyncIterator[Finding]:
    health = await stores.upkeep.health(thorough=thorough)
    facts = ", ".join(f"{name} {value}" for name, value in health.facts.items())
    damaged = health.facts.get("quick_check", "ok") != "ok"
    yield (problem if damaged else ok)("store", facts)
    for sentence in health.warnings:
        yield (problem if damaged and "damaged" in sentence else warning)("store", sentence)


async def of_invariants(stores: Stores) -> AsyncIterator[Finding]:
    broken = await stores.upkeep.check_invariants()
    for sentence in broken:
        yield problem("invariants", sentence)
    if not broken:
        yield ok("invariants", "all hold")


async def of_workers(stores: Stores) -> AsyncIterator[Finding]:
    for finding in workers_findings(await overview(stores)):
        yield finding


def workers_findings(seen: Overview) -> list[Finding]:
    found = []
    alive = [worker for worker in seen.workers if worker.liveness in _ALIVE]
    for worker in seen.workers:
        if worker.liveness is Liveness.STUCK:
            sentence = f"{worker.worker.id} renews its leases but has not gone round for {short_span(worker.stuck_ms)}"
            found.append(problem("workers", f"{sentence}; something blocks its event loop"))
        elif worker.liveness is Liveness.SILENT:
            sentence = f"{worker.worker.id} has been silent for {short_span(worker.silent_ms)}"
            found.append(warning("workers", f"{sentence}; others take over what it held"))
    waiting = seen.total(Status.PENDING)
    if not alive and waiting:
        sentence = f"none is running, and {waiting} tasks are pending"
        return [*found, warning("workers", sentence, "start one with `ade worker`")]
    return [*found, ok("workers", f"{len(alive)} running")]


async def of_queues(stores: Stores) -> AsyncIterator[Finding]:
    for finding in queues_findings(await overview(stores)):
        yield finding


def queues_findings(seen: Overview) -> list[Finding]:
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
    behind = {
        name: await lag(stores.events, seq, FAR_BEHIND + 1) for name, seq in (await stores.events.cursors()).items()
    }
    for name, count in behind.items():
        if count > FAR_BEHIND:
            sentence = f"the reader {name!r} is more than {FAR_BEHIND} events behind; nothing is trimmed past it"
            yield warning("event log", sentence)
    told = ", ".join(f"{name} is {counted(count)} behind" for name, count in behind.items()) or "no readers"
    yield ok("event log", f"it goes up to seq {await stores.events.last_seq()}, {told}")


def counted(count: int) -> str:
    return str(count) if count <= FAR_BEHIND else f"more than {FAR_BEHIND}"
