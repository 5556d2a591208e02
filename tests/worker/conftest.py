"""A fresh store for every story; afterwards its invariants must hold."""

from collections.abc import AsyncIterator

import pytest

from ade.ports import Stores
from ade.wiring import open_stores
from tests.worker.workshop import Workshop


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    opened = await open_stores("memory://")
    yield opened
    broken = await opened.upkeep.check_invariants()
    await opened.close()
    assert broken == []


@pytest.fixture
def workshop(stores: Stores) -> Workshop:
    return Workshop(stores)
