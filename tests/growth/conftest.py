"""Growth is counted on a file and on a server."""

import pytest

from ade.testing import TestClock
from tests.servers.plugin import server_pool

__all__ = ["server_pool"]


@pytest.fixture
def clock() -> TestClock:
    return TestClock()
