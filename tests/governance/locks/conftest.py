"""Agents that want locks, on a store in memory and on a file."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from ade.governance.locks.keeper import LockKeeper
from ade.ports import Stores
from ade.settings import Settings, StoreSettings
from ade.wiring import open_stores

PLACES: Mapping[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory://",
    "file": lambda folder: f"sqlite:///{folder / 'ade.db'}",
}


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    opened = await open_stores(PLACES[request.param](tmp_path), Settings(store=StoreSettings(ballast_mb=0)))
    yield opened
    await opened.close()


@pytest.fixture
async def keeper(stores: Stores) -> AsyncIterator[LockKeeper]:
    """One for all agents of this process."""
    made = LockKeeper(stores)
    yield made
    await made.close()
