"""Operations for probes, scrapers, and browsers: health, metrics, the OpenAPI document, problems, and sign-in."""

import os
import socket
from collections.abc import AsyncIterator

from msgspec import structs

from ade import VERSION
from ade.accounts.model import Permission
from ade.events.feed import events_after
from ade.server.context import RequestContext, Services
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
from ade.server.operation import AuthLevel, ETagUse, ReadRule, TrafficClass, operation
from ade.server.pagination import RawContent
from ade.server.problems import HttpFault, RequestRefused, problem_of_code
from ade.server.request_types import Form
from ade.tasks.identifiers import owner_of
from ade.tasks.model import Worker

_MOST_S = 0.8  # a readiness check that takes longer fails
# The sign-in page posts the secret in the URL fragment to the server. The secret is therefore in no request line and no
# log, and a program that only fetches the link, such as a chat or mail preview, does not consume it. The URLs in it are
# relative, so that they are below the base path of the server.
_LOGIN_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
_LOGIN_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in - ADE</title>
<script src="login.js" type="module"></script>
</head>
<body>
<main>
<h1>ADE</h1>
<p id="said" role="status">Signing in&hellip;</p>
<p id="on" hidden>You may close this page, or look at <a href="api/v1/me">who you are</a>.</p>
<noscript><p>This page needs JavaScript to keep the secret of the link out of every log.</p></noscript>
</main>
</body>
</html>
"""
_LOGIN_SCRIPT = """const said = document.getElementById("said");
const secret = location.hash.slice(1);
history.replaceState(null, "", location.pathname);

async function signIn() {
  if (!secret) {
    said.textContent = "Open the whole link, with what stands behind the #.";
    return;
  }
  const answer = await fetch("api/v1/sessions/login-link", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ secret }),
  });
  const told = await answer.json();
  said.textContent = answer.ok ? `You are signed in as ${told.account}.` : told.detail;
  document.getElementById("on").hidden = !answer.ok;
}

signIn().catch(() => {
  said.textContent = "The server does not answer. Reload the page to try again.";
});
"""


@operation("GET /livez", reads=ReadRule.PUBLIC, door=AuthLevel.PUBLIC, traffic=TrafficClass.PROBE, prefix="")
async def get_liveness(services: Services, request: RequestContext) -> ServingLiveness:
    """Whether the process is alive."""
    return ServingLiveness(alive=True, version=VERSION)


@operation("GET /readyz", reads=ReadRule.PUBLIC, door=AuthLevel.PUBLIC, traffic=TrafficClass.PROBE, prefix="")
async def get_readiness(services: Services, request: RequestContext) -> Readiness:
    """Whether it can do its work: store, migrations, loops. Raises RequestRefused (503) with the same checks while it
    is not ready."""
    found = await readiness(services.stores, timeout_s=_MOST_S, is_own=_is_own)
    checks = dict(found.checks)
    if services.feed is not None:
        checks["events"] = "ok" if services.feed.is_begun else "the log was not read yet"
    if all(said == "ok" for said in checks.values()):
        return Readiness(is_ready=True, checks=checks)
    wrong = "; ".join(f"{name}: {said}" for name, said in checks.items() if said != "ok")
    raise RequestRefused(HttpFault.UNAVAILABLE, f"not ready: {wrong}", checks=checks)


def _is_own(worker: Worker) -> bool:
    """Whether the worker is in this process. A worker connected over HTTP is not, whatever it reports."""
    return owner_of(worker.id) is None and worker.pid == os.getpid() and worker.hostname == socket.gethostname()


@operation(
    "GET /metrics",
    reads=ReadRule.ALL,
    permission=Permission.READ,
    media_types=("text/plain", "application/openmetrics-text"),
    prefix="",
)
async def get_metrics(services: Services, request: RequestContext) -> RawContent:
    """Figures for Prometheus."""
    if services.metrics is None:
        raise RequestRefused(HttpFault.UNAVAILABLE, "nothing is measured here")
    media_type, text = await services.metrics.text(request.accept)
    return RawContent(media_type=media_type, body=text.encode())


@operation("GET /openapi.json", reads=ReadRule.PUBLIC, door=AuthLevel.PUBLIC, tag=ETagUse.ANSWERED)
async def get_openapi(services: Services, request: RequestContext) -> RawContent:
    """This interface, described for programs."""
    from ade.server.openapi import document

    return RawContent(media_type="application/json", body=document(services.settings.http.base_path))


@operation(
    "GET /login", reads=ReadRule.PUBLIC, door=AuthLevel.PUBLIC, media_types=("text/html",), has_method=False, prefix=""
)
async def get_login_page(services: Services, request: RequestContext) -> RawContent:
    """The page that a one-time link opens."""
    return RawContent(media_type="text/html; charset=utf-8", body=_LOGIN_PAGE.encode(), policy=_LOGIN_POLICY)


@operation(
    "GET /login.js",
    reads=ReadRule.PUBLIC,
    door=AuthLevel.PUBLIC,
    media_types=("text/javascript",),
    has_method=False,
    prefix="",
)
async def get_login_script(services: Services, request: RequestContext) -> RawContent:
    """What that page does."""
    return RawContent(media_type="text/javascript; charset=utf-8", body=_LOGIN_SCRIPT.encode())


@operation("GET /problems/{code}", reads=ReadRule.PUBLIC, door=AuthLevel.PUBLIC, prefix="")
async def get_problem(services: Services, request: RequestContext, code: str) -> ProblemDescription:
    """What a problem means, and what to do."""
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


class GetHealth(Form):
    """How thorough the health check is."""

    thorough: bool = False  # also what takes longer the more there is: the store's files, and every invariant


_TIMEOUT_S = 10.0


@operation("GET /health", reads=ReadRule.ALL, permission=Permission.OPERATE)
async def get_health(services: Services, request: RequestContext, query: GetHealth) -> HealthReport:
    """Versions, sizes and what deserves attention."""
    if not query.thorough:
        return await _report(services, thorough=False)
    with services.exclusively("a thorough look at the store"):
        return await _report(services, thorough=True)


async def _report(services: Services, *, thorough: bool) -> HealthReport:
    report = await health(services.stores, events_after, timeout_s=_TIMEOUT_S)
    findings = [*report.findings, *[finding async for finding in _more(services, thorough=thorough)]]
    worst = max((finding.verdict for finding in findings), key=list(FindingsVerdict).index)
    return structs.replace(report, findings=findings, verdict=worst)


async def _more(services: Services, *, thorough: bool) -> AsyncIterator[Finding]:
    if services.audit is not None:
        yield await of_audit(services.stores.events, services.audit)
    if thorough:
        for part in (of_store, of_invariants):
            async for finding in part(services.stores):
                yield finding
