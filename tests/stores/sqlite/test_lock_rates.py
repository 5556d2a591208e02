"""How often owners ask for locks is kept for those who do, and not for ever."""

from collections.abc import AsyncIterator

import pytest

from ade.stores.sqlite.locks import SqliteLocks
from ade.testing import TestClock
from tests.domain import LockLimits, LockMode, Stores, StoreSettings, open_sqlite, validate_request

LIMITS = LockLimits(acquires=2, acquires_per_ms=10_000)


@pytest.fixture
async def stores(clock: TestClock) -> AsyncIterator[Stores]:
    opened = await open_sqlite("memory://", StoreSettings(), clock)
    yield opened
    await opened.close()


async def rates(stores: Stores) -> list[str]:
    assert isinstance(stores.locks, SqliteLocks)
    statement = "SELECT owner FROM lock_rate ORDER BY owner"
    rows = await stores.locks._writer.call(lambda connection: connection.execute(statement).fetchall())
    return [owner for (owner,) in rows]


async def test_the_sweep_forgets_who_has_not_asked_for_a_while(stores: Stores, clock: TestClock) -> None:
    for owner in ("ada", "bob"):
        request = validate_request(id=owner, owner=owner, scope=owner, wanted=[(f"repo:{owner}", LockMode.EXCLUSIVE)])
        await stores.locks.acquire(request, wait_ms=0, limits=LIMITS)
        clock.advance(40)
    assert await rates(stores) == ["ada", "bob"]

    await stores.locks.bury(100)
    assert await rates(stores) == ["bob"], "ada's has been free for more than a minute"

    clock.advance(40)
    await stores.locks.bury(100)
    assert await rates(stores) == []
