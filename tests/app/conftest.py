"""An app on a store and a clock of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade import Ade
from ade.settings import Settings
from ade.testing import TestKit, harness
from tests.domain import RedisSettings, StoreSettings
from tests.stores.urls import store_url


@pytest.fixture
def ade() -> Ade:
    store = StoreSettings(url="memory://", ballast_mb=0, inline_limit_kb=1)
    return Ade(settings=Settings(store=store, redis=RedisSettings(allow_volatile=True)))


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def kit(request: pytest.FixtureRequest, ade: Ade, tmp_path: Path) -> AsyncIterator[TestKit]:
    async with harness(ade, store_url(request.param, tmp_path)) as opened:
        yield opened
        assert await opened.stores.maintenance.check_invariants() == []
