"""Every story is told to every store. Afterwards the store's invariants must hold, whatever happened."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade.testing import TestClock
from tests.conformance.backends import BACKENDS, Backend, sound
from tests.conformance.scene import Scene
from tests.domain import Stores

LONG = ("redis", "cluster")  # they run the same scripts as Valkey, so `make test` leaves them to `make test-all`


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.long) if each in LONG else each for each in BACKENDS])
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]


@pytest.fixture
async def stores(backend: Backend, tmp_path: Path, clock: TestClock) -> AsyncIterator[Stores]:
    async with sound(await backend.open(tmp_path, clock)) as opened:
        yield opened


@pytest.fixture
def scene(stores: Stores, clock: TestClock) -> Scene:
    return Scene(stores, clock)
