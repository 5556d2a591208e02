"""How long leases are and how often they are renewed, as the store says while all goes on."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ade.errors import InvalidLock
from ade.locks.holder import HeldLock, LockHolder
from tests.domain import RULES, Document, LockMode, LockRequest, StoreLockClient, Stores, set_value, validate_request
from tests.waiting import eventually

DB = "database:main"


def wanting(ttl_ms: int | None = None) -> LockRequest:
    name = os.urandom(8).hex()
    return validate_request(id=name, owner=name, scope=name, wanted=[(DB, LockMode.EXCLUSIVE)], ttl_ms=ttl_ms)


async def lease_of(holder: LockHolder[StoreLockClient], request: LockRequest) -> int:
    held = await holder.acquire(request, wait_ms=0)
    await holder.release(held)
    return held.grant.ttl_ms


async def test_a_lock_that_names_no_lease_gets_the_default_of_the_store(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    assert await lease_of(holder, wanting()) == 30_000
    await set_value(stores, "lock.default_ttl_s", 12.5, actor="ada")

    assert await lease_of(holder, wanting()) == 12_500
    assert await lease_of(holder, wanting(20_000)) == 20_000


async def test_a_longer_lease_than_the_store_allows_is_refused(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    await set_value(stores, "lock.max_ttl_s", 60, actor="ada")

    with pytest.raises(InvalidLock, match="at most 60 s"):
        await holder.acquire(wanting(60_001), wait_ms=0)
    await holder.client.refresh()
    with pytest.raises(InvalidLock, match="at most 60 s"):
        await asyncio.to_thread(holder.acquire_blocking, wanting(60_001), wait_ms=0)

    assert await lease_of(holder, wanting(60_000)) == 60_000


async def test_the_locks_of_a_task_are_leased_for_as_long_as_allowed(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    """A worker's own lease may be longer than that of any lock; its tasks run all the same."""
    await set_value(stores, "lock.max_ttl_s", 40, actor="ada")

    held = await holder.take(wanting(50_000))

    assert held is not None
    assert held.grant.ttl_ms == 40_000


async def test_threads_know_the_settings_too(stores: Stores, holder: LockHolder[StoreLockClient]) -> None:
    assert not holder.client.is_up_to_date
    await set_value(stores, "lock.default_ttl_s", 15, actor="ada")
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(lambda: holder.client.is_up_to_date):  # again whenever the store rings
            await holder.client.refresh()

    held = await asyncio.to_thread(holder.acquire_blocking, wanting(), wait_ms=0)

    assert isinstance(held, HeldLock)
    assert held.grant.ttl_ms == 15_000
    stores.wakeups.notify(RULES)
    assert not await asyncio.to_thread(lambda: holder.client.is_up_to_date)


async def test_a_lock_is_renewed_at_every_heartbeat_however_long_its_lease(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    await set_value(stores, "lock.heartbeat_interval_s", 0.1, actor="ada")
    held = await holder.acquire(wanting(3_600_000), wait_ms=0)

    async def renewed() -> int:
        [found] = await stores.locks.look("default", [held.id])
        assert found is not None
        return found.heartbeats if found.heartbeats >= 3 else 0

    assert await eventually(renewed) >= 3


async def test_locks_do_not_read_the_settings_each_time(stores: Stores) -> None:
    kinds: list[str] = []

    class Counting:
        async def list_documents(self, kind: str) -> Sequence[Document]:
            kinds.append(kind)
            return await stores.documents.list_documents(kind)

        async def fetch(self, kind: str, ids: Sequence[str]) -> Sequence[Document | None]:
            kinds.append(kind)
            return await stores.documents.fetch(kind, ids)

    counting: Any = Counting()
    holder = LockHolder(StoreLockClient(replace(stores, documents=counting)))
    await holder.client.refresh()
    holder.client._settings._current_at += 60.0  # for a minute nothing is too old
    for _ in range(50):
        await lease_of(holder, wanting())
    await holder.close()

    assert kinds.count("setting") <= 2  # once more if the store rings because somebody has begun to listen
