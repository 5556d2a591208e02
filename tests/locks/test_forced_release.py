"""A lock that an operator takes away: its holder hears of it at once, and so does a waiter whose place is gone."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from ade.errors import LockLost, LockPlaceLost, LockTimeout
from tests.domain import LockHolder, LockLimits, LockMode, LockQuery, StoreLockClient, Stores, validate_request
from tests.locks.test_holder import waiting_for

HOUR_MS = 3_600_000
NAME = "repo:app"
VERBS = ("acquire", "renew", "release", "look", "poll", "find", "bury")


def wanting(scope: str, **fields: Any) -> Any:
    known = {"id": f"{scope}-id", "owner": scope, "scope": scope, "wanted": [(NAME, LockMode.EXCLUSIVE)]}
    return validate_request(**(known | {"ttl_ms": HOUR_MS} | fields))


async def test_a_forced_release_reaches_the_holder_at_once(stores: Stores, holder: LockHolder[StoreLockClient]) -> None:
    """The next renewal would come after many seconds: a third of the lease, at most every heartbeat."""
    held = await holder.acquire(wanting("ada"), wait_ms=0)
    is_lost = asyncio.Event()
    held.when_lost(is_lost.set)

    async with asyncio.timeout(8):
        await stores.locks.take_away("default", held.id, reason="it hangs", by="olga")
        await is_lost.wait()

    with pytest.raises(LockLost):
        held.check()


async def test_locks_that_were_not_taken_away_stay(stores: Stores, holder: LockHolder[StoreLockClient]) -> None:
    first = await holder.acquire(wanting("ada"), wait_ms=0)
    other = await holder.acquire(wanting("bob", wanted=[("db", LockMode.EXCLUSIVE)]), wait_ms=0)
    is_lost = asyncio.Event()
    first.when_lost(is_lost.set)

    await stores.locks.take_away("default", first.id, reason="it hangs", by="olga")
    async with asyncio.timeout(30):
        await is_lost.wait()

    assert (first.is_lost, other.is_lost) == (True, False)


async def test_a_waiter_whose_place_is_gone_is_told_so_and_not_that_it_waited_too_long(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    held = await holder.acquire(wanting("ada"), wait_ms=0)
    waiting = asyncio.create_task(holder.acquire(wanting("bob"), wait_ms=None))
    await waiting_for(stores, NAME, 1)

    await stores.locks.take_away("default", "bob-id", reason="no more", by="olga")

    with pytest.raises(LockPlaceLost, match="place in the queue for repo:app is gone"):
        async with asyncio.timeout(30):
            await waiting
    held.check()


async def test_a_waiter_whose_place_was_lost_with_the_data_is_told_so(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    await holder.acquire(wanting("ada"), wait_ms=0)
    waiting = asyncio.create_task(holder.acquire(wanting("bob"), wait_ms=HOUR_MS))
    await waiting_for(stores, NAME, 1)

    await forget_everything(stores)

    with pytest.raises(LockPlaceLost, match="the store has lost data"):
        async with asyncio.timeout(30):
            await waiting


async def forget_everything(stores: Stores) -> None:
    """The store has lost its locks, and no process is notified: as after a failover to an old copy."""
    locks: Any = stores.locks
    if hasattr(locks, "_writer"):
        statements = ("DELETE FROM lock_item", "DELETE FROM lock_request")
        await locks._writer.call(lambda connection: [connection.execute(each).fetchall() for each in statements])
        return
    for partition in range(locks._link.partitions):
        keys = await locks._link.ask(partition, ("KEYS", "*lock:*"))
        for key in keys[0] if isinstance(keys[0], list) else keys:
            await locks._link.ask(partition, ("DEL", key))


async def test_one_that_waited_as_long_as_it_wanted_is_told_that(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    await holder.acquire(wanting("ada"), wait_ms=0)

    with pytest.raises(LockTimeout):
        await holder.acquire(wanting("bob"), wait_ms=20)
    assert [one.owner for one in await stores.locks.find(LockQuery(namespace="default"))] == ["ada"]


async def test_a_lock_costs_no_more_calls_than_it_takes(stores: Stores) -> None:
    """One to acquire and one to release; a hand-over needs no more."""
    calls: list[str] = []

    def counted(name: str) -> Any:
        found = getattr(stores.locks, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return found(*args, **kwargs)

        return call

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return counted(name) if name in VERBS else getattr(stores.locks, name)

    counting: Any = Counting()
    holder = LockHolder(StoreLockClient(replace(stores, locks=counting), limits=LockLimits()))
    await holder.client.refresh()
    for number in range(3):
        await holder.release(await holder.acquire(wanting(f"ada-{number}"), wait_ms=0))
    await holder.close()

    assert calls == ["acquire", "release"] * 3
