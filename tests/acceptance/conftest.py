"""The stores the protocol must hold on. A further store joins by a line in STORES."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from ade import Ade, Settings
from ade.settings.sections import RedisSettings, StoreSettings
from ade.testing import TestKit, harness
from tests.servers.plugin import binary_or_skip
from tests.servers.pool import POOL

STORES: Mapping[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'ade.db'}",
    "valkey": lambda _: POOL.standalone("valkey").url,
    "redis": lambda _: POOL.standalone(binary_or_skip("redis").kind).url,
    "cluster": lambda _: POOL.cluster("valkey").url,
}


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return STORES[request.param](tmp_path)


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
