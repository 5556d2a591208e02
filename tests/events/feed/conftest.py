"""Each story of the feed is told on a store in memory and on one in a file, on a clock that the story moves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade.testing import TestClock
from tests.conformance.backends import BACKENDS
from tests.domain import Stores


@pytest.fixture(params=["memory", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, clock)
    yield opened
    await opened.close()
