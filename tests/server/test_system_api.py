"""Figures and health over the operations."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from ade import Status
from ade.errors import InvalidFilter, NotPermitted
from ade.events import api as events_api
from ade.events.api import StatsSeries
from ade.events.metrics import Series
from ade.events.metrics_collector import MetricsCollector
from ade.server import api_system
from ade.server.api_system import GetHealth
from ade.settings.sections import FigureSettings
from ade.tasks.api import create
from ade.tasks.overview import Overview
from tests.domain import FindingsVerdict, NewTask, RequestRefused, Role, from_wire, plan_of, to_wire
from tests.server.operations import LOCAL, Operations


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the audit copy of a server's store would be, too."""
    monkeypatch.chdir(tmp_path)


async def test_how_things_stand_goes_over_the_wire_whole(ops: Operations) -> None:
    await create.create_task(ops.services, LOCAL, NewTask(name="greet", queue="a"))
    seen = await events_api.get_stats(ops.services, LOCAL)
    assert (seen.total(Status.PENDING), seen.throughput.created_per_s > 0) == (1, True)
    assert [worker.worker.id for worker in seen.workers] == ["w"]

    sent = msgspec.json.encode(to_wire(seen))
    back = from_wire(msgspec.json.decode(sent, type=plan_of(Overview).wire), Overview)
    assert (back.queues, back.names, back.throughput) == (seen.queues, seen.names, seen.throughput)
    assert [(w.worker.id, w.liveness) for w in back.workers] == [(w.worker.id, w.liveness) for w in seen.workers]


async def test_figures_over_time_are_told_step_by_step(ops: Operations) -> None:
    for name in ("greet", "greet"):
        await create.create_task(ops.services, LOCAL, NewTask(name=name))
    ops.clock.advance(1)  # the series ends before the step that begins now
    await MetricsCollector(ops.services.stores, FigureSettings()).keep()

    told = await events_api.get_stats_series(ops.services, LOCAL, StatsSeries())
    assert (told.step_s, sum(point.enqueued for point in told.points)) == (60, 2)
    assert told.until - told.since >= 3_600_000
    sent = msgspec.json.encode(to_wire(told))
    assert b'"until":"20' in sent
    assert from_wire(msgspec.json.decode(sent, type=plan_of(Series).wire), Series) == told
    other = await events_api.get_stats_series(ops.services, LOCAL, StatsSeries(queue="other"))
    assert sum(point.enqueued for point in other.points) == 0

    now = datetime.fromtimestamp(ops.clock.now() / 1000, UTC)
    for wrong in (
        StatsSeries(step_s=61),
        StatsSeries(since=now, until=now),
        StatsSeries(since=datetime(2000, 1, 1, tzinfo=UTC)),
        StatsSeries(until=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),  # on a whole step it is past all years
    ):
        with pytest.raises(InvalidFilter):
            await events_api.get_stats_series(ops.services, LOCAL, wrong)


async def test_health_says_what_deserves_attention(ops: Operations) -> None:
    assert (
        await api_system.get_health(ops.services, LOCAL, GetHealth())
    ).verdict is FindingsVerdict.OK  # it has just begun
    ops.clock.advance(20)
    report = await api_system.get_health(ops.services, LOCAL, GetHealth())
    checks = {finding.check for finding in report.findings}
    assert checks >= {"store", "workers", "queues", "event log", "audit", "duties"}
    assert "invariants" not in checks
    assert report.verdict is FindingsVerdict.PROBLEM
    told = " ".join(finding.sentence for finding in report.findings)
    assert "w renews its leases, but its loop has not run for 20 s" in told

    await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    ops.clock.advance(600)
    report = await api_system.get_health(ops.services, LOCAL, GetHealth(thorough=True))
    assert report.verdict is FindingsVerdict.WARNING
    assert "w has been silent" in " ".join(finding.sentence for finding in report.findings)
    assert [f.sentence for f in report.findings if f.check == "invariants"] == ["all hold"]
    msgspec.json.encode(to_wire(report))


async def test_a_thorough_look_is_taken_once_at_a_time(ops: Operations) -> None:
    looks = [api_system.get_health(ops.services, LOCAL, GetHealth(thorough=True)) for _ in range(3)]
    done = await asyncio.gather(*looks, return_exceptions=True)
    refused = [each for each in done if isinstance(each, RequestRefused)]
    assert [each.problem.status for each in refused] == [503, 503]
    assert refused[0].problem.headers["Retry-After"] == "10"
    await api_system.get_health(ops.services, LOCAL, GetHealth(thorough=True))


async def test_all_see_figures_and_operators_see_health(ops: Operations) -> None:
    viewer = await ops.account("vera", Role.VIEWER)
    ops.request(viewer, "get_stats")
    ops.request(viewer, "get_stats_series")
    with pytest.raises(NotPermitted):
        ops.request(viewer, "get_health")
