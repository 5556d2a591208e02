"""What every test shares: the event loop it runs on and how hard hypothesis tries."""

import os

import pytest
from hypothesis import settings

# A busy machine is no reason for a property to fail, so examples have no deadline.
settings.register_profile("ade", deadline=None, print_blob=True, derandomize=False)
# The same examples in every run: a red build is about the change, not about luck.
settings.register_profile("ade-ci", settings.get_profile("ade"), derandomize=True, database=None)
settings.load_profile("ade-ci" if os.environ.get("CI") == "true" else "ade")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio alone; ADE supports no other loop."""
    return "asyncio"
