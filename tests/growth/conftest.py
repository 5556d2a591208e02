"""Growth is counted on a file and on a server."""

import pytest

from ade.testing import TestClock


@pytest.fixture
def clock() -> TestClock:
    return TestClock()
