"""A store, a clock that stands still, and room for large payloads beside it."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from ade.composition.stores import open_stores
from ade.settings import Settings
from ade.settings.sections import RedisSettings, StoreSettings
from ade.stores.ports import Stores
from ade.tasks.payloads import Payloads
from ade.testing import TestClock
from tests.conformance.backends import sound
from tests.queue.desk import Desk
from tests.servers.pool import POOL


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


PLACES: Mapping[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory://",
    "file": lambda folder: f"sqlite:///{folder / 'ade.db'}",
    "server": lambda _: POOL.standalone("valkey").url,
}


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> AsyncIterator[Stores]:
    settings = Settings(store=StoreSettings(ballast_mb=0), redis=RedisSettings(allow_volatile=True))
    async with sound(await open_stores(PLACES[request.param](tmp_path), settings, clock)) as opened:
        yield opened


@pytest.fixture
def payloads(stores: Stores) -> Payloads:
    return Payloads(stores.blobs, inline_limit=100, hard_limit=10_000)


@pytest.fixture
def desk(stores: Stores, payloads: Payloads, clock: TestClock) -> Desk:
    return Desk(stores, payloads, clock)
