"""The stores the protocol must hold on. Another store joins by its name in STORES."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade import Ade, Settings
from ade.testing import TestKit, harness
from tests.domain import RedisSettings, StoreSettings
from tests.stores.urls import store_url

STORES = ("sqlite", "valkey", "redis", "cluster")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request.param, tmp_path)


@pytest.fixture
def ade(url: str) -> Ade:
    store = StoreSettings(url=url, ballast_mb=0)
    return Ade(settings=Settings(store=store, redis=RedisSettings(allow_volatile=True)))


@pytest.fixture
async def kit(ade: Ade, url: str) -> AsyncIterator[TestKit]:
    """The app on its store with a clock that moves when told to; afterwards every invariant must hold."""
    async with harness(ade, url) as opened:
        yield opened
        assert await opened.stores.maintenance.check_invariants() == []
