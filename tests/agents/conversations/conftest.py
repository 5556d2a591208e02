"""Every story is told on a file and on a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agents.conversations.coding_agent import Coder
from tests.agents.conversations.consumers import Waterworks
from tests.conformance.backends import BACKENDS, sound
from tests.domain import Stores
from tests.worker.harness import Workshop


@pytest.fixture(params=["sqlite", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    async with sound(await BACKENDS[request.param].open(tmp_path, None)) as opened:
        yield opened


@pytest.fixture
def works(stores: Stores) -> Waterworks:
    return Waterworks(stores)


@pytest.fixture
def coder() -> Coder:
    return Coder()


@pytest.fixture
def shop(works: Waterworks, coder: Coder) -> Workshop:
    made = Workshop(works.stores)
    made.handle(coder.run, name="agent:coder", concurrency_per_key=1)  # as apps do
    return made
