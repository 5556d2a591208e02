"""Every kind of store that behaves in a way of its own, under a clock that moves only when a story says so."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade.stores.ports import Stores
from tests.conformance.backends import BACKENDS, sound
from tests.conformance.clock import StoryClock


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: StoryClock) -> AsyncIterator[Stores]:
    async with sound(await BACKENDS[request.param].open(tmp_path, clock)) as opened:
        yield opened
