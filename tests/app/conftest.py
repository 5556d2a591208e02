"""An app on a store and a clock of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade import Ade
from ade.settings import Settings, StoreSettings
from ade.testing import TestKit, harness


@pytest.fixture
def ade() -> Ade:
    return Ade(settings=Settings(store=StoreSettings(url="memory://", ballast_mb=0, inline_limit_kb=1)))


@pytest.fixture(params=["memory", "file"])
async def kit(request: pytest.FixtureRequest, ade: Ade, tmp_path: Path) -> AsyncIterator[TestKit]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'ade.db'}"
    async with harness(ade, url) as opened:
        yield opened
        assert await opened.stores.upkeep.check_invariants() == []
