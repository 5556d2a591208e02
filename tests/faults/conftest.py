"""Every fault happens on a fresh file; afterwards all processes are ended and the invariants must hold."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.domain import open_stores
from tests.faults.workers import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    url = f"sqlite:///{tmp_path / 'ade.db'}"
    stores = await open_stores(url)
    made = Site(tmp_path, stores, url)
    yield made
    made.end()
    broken = await stores.maintenance.check_invariants()
    await stores.close()
    assert broken == []
