"""How everything is, for people who operate it: what `ade doctor` looks at."""

from collections.abc import AsyncIterator

from msgspec import structs

from ade.core.web.forms.health import GetHealth
from ade.events.audit_findings import of_audit
from ade.events.lag import events_after
from ade.insight.findings import Finding, Verdict, of_invariants, of_store
from ade.insight.health import HealthReport, health
from ade.operations.kit import Asked, Office
from ade.operations.turns import alone

_TIMEOUT_S = 10.0


async def get_health(office: Office, asked: Asked, query: GetHealth) -> HealthReport:
    if not query.thorough:
        return await _report(office, thorough=False)
    with alone(office, "a thorough look at the store"):
        return await _report(office, thorough=True)


async def _report(office: Office, *, thorough: bool) -> HealthReport:
    report = await health(office.stores, events_after, timeout_s=_TIMEOUT_S)
    findings = [*report.findings, *[finding async for finding in _more(office, thorough=thorough)]]
    worst = max((finding.verdict for finding in findings), key=list(Verdict).index)
    return structs.replace(report, findings=findings, verdict=worst)


async def _more(office: Office, *, thorough: bool) -> AsyncIterator[Finding]:
    if office.audit is not None:
        yield await of_audit(office.stores.events, office.audit)
    if thorough:
        for part in (of_store, of_invariants):
            async for finding in part(office.stores):
                yield finding
