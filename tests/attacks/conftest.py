"""Every attack is tried on both stores; on Valkey in `make test-all`, because each attack starts a whole site."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.attacks.site import Site, open_site


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.long)])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(request.param, tmp_path) as opened:
        yield opened
