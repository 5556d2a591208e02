"""A fresh store for every story; afterwards its invariants must hold."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.backends import BACKENDS, sound
from tests.domain import Stores, open_stores
from tests.worker.harness import Workshop


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with sound(await open_stores("memory://")) as opened:
        yield opened


@pytest.fixture
def workshop(stores: Stores) -> Workshop:
    return Workshop(stores)


@pytest.fixture(params=["memory", "sqlite", "valkey", "cluster"])
async def workshop_anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Workshop]:
    """On every kind of store, with real time: for what a worker does with more than one port of it."""
    async with sound(await BACKENDS[request.param].open(tmp_path, None)) as opened:
        yield Workshop(opened)
