"""What probes, scrapers and curious programs ask for."""

import os
import socket
from collections.abc import AsyncIterator

from msgspec import structs

from ade import VERSION
from ade.events.feed import events_after
from ade.server.health import (
    Finding,
    FindingsVerdict,
    HealthReport,
    ProblemDescription,
    Readiness,
    ServingLiveness,
    health,
    of_audit,
    of_invariants,
    of_store,
    readiness,
)
from ade.server.operations import RequestContext, Services, exclusively
from ade.server.pagination import RawContent
from ade.server.problems import HttpFault, RequestRefused, problem_of_code
from ade.server.request_types import Form
from ade.tasks.identifiers import owner_of
from ade.tasks.model import Worker

_MOST_S = 0.8  # a probe that takes longer than this is told no


async def get_liveness(office: Services, asked: RequestContext) -> ServingLiveness:
    return ServingLiveness(alive=True, version=VERSION)


async def get_readiness(office: Services, asked: RequestContext) -> Readiness:
    """Raises RequestRefused (503) with the same facts while it is not ready."""
    found = await readiness(office.stores, timeout_s=_MOST_S, is_own=_is_own)
    checks = dict(found.checks)
    if office.feed is not None:
        checks["events"] = "ok" if office.feed.is_begun else "the log was not read yet"
    if all(said == "ok" for said in checks.values()):
        return Readiness(is_ready=True, checks=checks)
    wrong = "; ".join(f"{name}: {said}" for name, said in checks.items() if said != "ok")
    raise RequestRefused(HttpFault.UNAVAILABLE, f"not ready: {wrong}", checks=checks)


def _is_own(worker: Worker) -> bool:
    """Of this process. What a worker behind HTTP says of itself counts for nothing here: it is never in this one."""
    return owner_of(worker.id) is None and worker.pid == os.getpid() and worker.hostname == socket.gethostname()


async def get_metrics(office: Services, asked: RequestContext) -> RawContent:
    if office.metrics is None:
        raise RequestRefused(HttpFault.UNAVAILABLE, "nothing is measured here")
    media_type, text = await office.metrics.text(asked.accept)
    return RawContent(media_type=media_type, body=text.encode())


async def get_openapi(office: Services, asked: RequestContext) -> RawContent:
    from ade.server.openapi import document

    return RawContent(media_type="application/json", body=document())


async def get_problem(office: Services, asked: RequestContext, code: str) -> ProblemDescription:
    problem = problem_of_code(code)
    if problem is None:
        raise RequestRefused(HttpFault.NOT_FOUND)
    advice = problem.more.get("advice")
    return ProblemDescription(
        code=problem.code,
        status=problem.status,
        title=problem.title,
        detail=problem.detail,
        advice=advice if isinstance(advice, str) else None,
    )


# What is asked about health.


class GetHealth(Form):
    thorough: bool = False  # also what takes longer the more there is: the store's files, and every invariant


# How everything is, for people who operate it: what `ade doctor` looks at.


_TIMEOUT_S = 10.0


async def get_health(office: Services, asked: RequestContext, query: GetHealth) -> HealthReport:
    if not query.thorough:
        return await _report(office, thorough=False)
    with exclusively(office, "a thorough look at the store"):
        return await _report(office, thorough=True)


async def _report(office: Services, *, thorough: bool) -> HealthReport:
    report = await health(office.stores, events_after, timeout_s=_TIMEOUT_S)
    findings = [*report.findings, *[finding async for finding in _more(office, thorough=thorough)]]
    worst = max((finding.verdict for finding in findings), key=list(FindingsVerdict).index)
    return structs.replace(report, findings=findings, verdict=worst)


async def _more(office: Services, *, thorough: bool) -> AsyncIterator[Finding]:
    if office.audit is not None:
        yield await of_audit(office.stores.events, office.audit)
    if thorough:
        for part in (of_store, of_invariants):
            async for finding in part(office.stores):
                yield finding
