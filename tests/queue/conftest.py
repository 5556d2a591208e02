"""A store, a clock that stands still, and room for large payloads beside it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade.ports import Stores
from ade.queue.payloads import Payloads
from ade.settings import Settings, StoreSettings
from ade.testing import TestClock
from ade.wiring import open_stores
from tests.queue.desk import Desk


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture(params=["memory", "file"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> AsyncIterator[Stores]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'ade.db'}"
    opened = await open_stores(url, Settings(store=StoreSettings(ballast_mb=0)), clock)
    yield opened
    broken = await opened.upkeep.check_invariants()
    await opened.close()
    assert broken == []


@pytest.fixture
def payloads(stores: Stores) -> Payloads:
    return Payloads(stores.blobs, inline_limit=100, hard_limit=10_000)


@pytest.fixture
def desk(stores: Stores, payloads: Payloads, clock: TestClock) -> Desk:
    return Desk(stores, payloads, clock)
