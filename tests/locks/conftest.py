"""Agents that want locks, on every kind of store, in real time."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.backends import BACKENDS
from tests.domain import LockHolder, StoreLockClient, Stores


@pytest.fixture(params=["memory", "sqlite", "valkey", "cluster"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, None)
    yield opened
    await opened.close()


@pytest.fixture
async def holder(stores: Stores) -> AsyncIterator[LockHolder[StoreLockClient]]:
    """One for all agents of this process."""
    made = LockHolder(StoreLockClient(stores))
    yield made
    await made.close()
