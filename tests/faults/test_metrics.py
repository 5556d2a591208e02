"""Whoever counts dies before or after a write: nothing is left out, and nothing counted twice."""

import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ade.events.metrics import series
from ade.events.metrics_collector import load_totals
from ade.events.rollups import Rollup
from ade.settings import Settings
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import RedisSettings, Stores, open_stores
from tests.faults.metrics_program import PAGE
from tests.faults.programs import stage
from tests.servers.pool import POOL

pytestmark = pytest.mark.faults
TASKS = 12


@pytest.fixture(params=["sqlite", "valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ade.db'}" if request.param == "sqlite" else POOL.standalone("valkey").url


@pytest.fixture
async def stores(url: str) -> AsyncIterator[Stores]:
    opened = await open_stores(url, Settings(redis=RedisSettings(allow_volatile=True)))
    yield opened
    await opened.close()


async def test_killed_at_every_write_in_turn(url: str, stores: Stores, tmp_path: Path) -> None:
    clock = TestClock(datetime.now(UTC))
    scene = Scene(stores, clock)
    await scene.add_many(TASKS)
    await scene.run(TASKS)
    with stage(tmp_path) as programs:
        for number, when in enumerate(["before", "after"] * 2):
            doomed = programs.start(f"doomed-{number}", "tests.faults.metrics_program", url, "1", when)
            assert await doomed.exit_code() == -signal.SIGKILL
        doomed = programs.start("doomed", "tests.faults.metrics_program", url, "2", "after")
        assert await doomed.exit_code() == -signal.SIGKILL
        heir = programs.start("heir", "tests.faults.metrics_program", url, "0", "never")
        assert await heir.exit_code() == 0, heir.log()

    assert 3 * TASKS > 4 * PAGE, "there was something left for the heir"
    ever = Rollup(100, (await load_totals(stores)).totals.entries).total()
    assert (ever.enqueued, ever.completed, ever.wait.count, ever.run.count) == (TASKS,) * 4
    now = stores.clock.now()
    found = await series(stores, since=now - 600_000, until=now + 60_000, step_s=60)
    assert sum(point.completed for point in found.points) == TASKS
