"""What probes, scrapers and curious programs ask for."""

import os
import socket

from ade.core.records import Worker
from ade.core.web.http_workers import owner_of
from ade.core.web.problems import RequestRefused, problem_of_code
from ade.core.web.statuses import Fault
from ade.insight.health import Readiness, readiness
from ade.insight.serving import Liveness, Meaning
from ade.operations.kit import Asked, Content, Office
from ade.version import VERSION

_MOST_S = 0.8  # a probe that takes longer than this is told no


async def get_liveness(office: Office, asked: Asked) -> Liveness:
    return Liveness(alive=True, version=VERSION)


async def get_readiness(office: Office, asked: Asked) -> Readiness:
    """Raises RequestRefused (503) with the same facts while it is not ready."""
    found = await readiness(office.stores, timeout_s=_MOST_S, is_own=_is_own)
    checks = dict(found.checks)
    if office.feed is not None:
        checks["events"] = "ok" if office.feed.is_begun else "the log was not read yet"
    if all(said == "ok" for said in checks.values()):
        return Readiness(is_ready=True, checks=checks)
    wrong = "; ".join(f"{name}: {said}" for name, said in checks.items() if said != "ok")
    raise RequestRefused(Fault.UNAVAILABLE, f"not ready: {wrong}", checks=checks)


def _is_own(worker: Worker) -> bool:
    """Of this process. What a worker behind HTTP says of itself counts for nothing here: it is never in this one."""
    return owner_of(worker.id) is None and worker.pid == os.getpid() and worker.hostname == socket.gethostname()


async def get_metrics(office: Office, asked: Asked) -> Content:
    if office.metrics is None:
        raise RequestRefused(Fault.UNAVAILABLE, "nothing is measured here")
    media_type, text = await office.metrics.text(asked.accept)
    return Content(media_type=media_type, body=text.encode())


async def get_openapi(office: Office, asked: Asked) -> Content:
    from ade.operations.openapi import document

    return Content(media_type="application/json", body=document())


async def get_problem(office: Office, asked: Asked, code: str) -> Meaning:
    problem = problem_of_code(code)
    if problem is None:
        raise RequestRefused(Fault.NOT_FOUND)
    advice = problem.more.get("advice")
    return Meaning(
        code=problem.code,
        status=problem.status,
        title=problem.title,
        detail=problem.detail,
        advice=advice if isinstance(advice, str) else None,
    )
