"""A shop whose deployments people must approve; afterwards the store's invariants must hold."""

from collections.abc import AsyncIterator

import pytest

from tests.approvals.scene import Scene, scene


@pytest.fixture
async def shop() -> AsyncIterator[Scene]:
    """Ada writes; bob, cy and dee review; root is the administrator."""
    async with scene() as made:
        await made.people(ada="reviewer", bob="reviewer", cy="reviewer dba", dee="reviewer", root="admin")
        yield made
        assert await made.stores.maintenance.check_invariants() == []
