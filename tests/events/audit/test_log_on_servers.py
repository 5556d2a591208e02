"""The audit copy of a log that lies on servers: seqs are times, have gaps, and come from several partitions at once."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from ade import Task
from ade.errors import AuditBroken
from ade.events.audit_copy import CURSOR, AuditCopy, copy_events, read_chain_head, verify
from ade.settings import Settings
from tests.domain import RedisSettings, Stores, events_after, open_stores, uuid7
from tests.events.audit.copies import Place
from tests.servers.pool import POOL

QUEUES = [f"queue-{number}" for number in range(12)]


@pytest.fixture(params=["valkey", "cluster"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    server = POOL.standalone("valkey") if request.param == "valkey" else POOL.cluster("valkey")
    opened = await open_stores(server.url, Settings(redis=RedisSettings(allow_volatile=True)))
    yield opened
    await opened.close()


async def happen(stores: Stores, count: int) -> list[str]:
    now = stores.clock.now()
    tasks = [
        Task(id=uuid7(now, os.urandom(10)), name="work", queue=QUEUES[number % len(QUEUES)], created_at=now)
        for number in range(count)
    ]
    for task in tasks:
        await stores.tasks.add([task])
    return [task.id for task in tasks]


async def copy_all(stores: Stores, audit: AuditCopy, limit: int = 1_000) -> int:
    copied = 0
    while count := await copy_events(stores.events, audit, limit=limit):
        copied += count
    return copied


async def test_every_event_is_copied_once_in_one_order_and_the_chain_holds(stores: Stores, audit: AuditCopy) -> None:
    made = await happen(stores, 30)

    assert await copy_all(stores, audit, limit=7) == 30
    made += await happen(stores, 10)
    assert await copy_all(stores, audit) == 10

    seqs = [entry.seq for entry in await audit.entries(0, 100)]
    assert seqs == sorted(set(seqs))
    assert {event.task_id for event in await stores.events.read(0, 100)} == set(made)
    assert (await stores.events.cursors()).get(CURSOR, 0) == seqs[-1]
    assert [step async for step in verify(stores.events, audit)][-1] == (40, 40)


async def test_whoever_copies_while_others_write_misses_nothing(stores: Stores, audit: AuditCopy) -> None:
    """Partitions write at the same time; a reader must not pass an event that is still to come below its place."""
    writing = [asyncio.create_task(happen(stores, 40)) for _ in range(4)]
    copied = 0
    while not all(task.done() for task in writing):
        copied += await copy_events(stores.events, audit, limit=50)
    copied += await copy_all(stores, audit)

    assert copied == 160
    assert [step async for step in verify(stores.events, audit)][-1] == (160, 160)


async def test_a_changed_entry_is_found(stores: Stores, audit: AuditCopy, place: Place) -> None:
    await happen(stores, 5)
    await copy_all(stores, audit)
    seq = (await audit.entries(0, 5))[2].seq
    place.tamper(f"UPDATE {place.table} SET body = {place.changed_body} WHERE seq = {seq}")

    with pytest.raises(AuditBroken):
        _ = [step async for step in verify(stores.events, audit)]
    with pytest.raises(AuditBroken, match="breaks at entry"):
        await read_chain_head(stores.events, audit)
    assert await events_after(stores.events, seq, 1_000) == 2


async def test_the_log_is_trimmed_only_behind_the_copy(stores: Stores, audit: AuditCopy) -> None:
    await happen(stores, 6)
    await copy_events(stores.events, audit, limit=2)
    reached = (await stores.events.cursors()).get(CURSOR, 0)
    # The tasks are still there, so nothing goes, however old it is.
    assert await stores.events.trim(stores.clock.now() + 60_000, 100) == 0
    assert reached > 0
    assert len(await stores.events.read(0, 100)) == 6
