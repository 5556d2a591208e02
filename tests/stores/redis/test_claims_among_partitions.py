"""A worker of several partitions: what it asks for again, and what stands behind work it does not do."""

import os
from collections.abc import AsyncIterator

import pytest

from tests.domain import ClaimRequest, Definition
from tests.servers.pool import Pool
from tests.stores.redis.ports import Ports, open_ports

LEASE_MS = 30_000


@pytest.fixture
async def spread(server_pool: Pool) -> AsyncIterator[Ports]:
    async with open_ports(server_pool.cluster("valkey").url, partitions=4) as opened:
        yield opened


def wanted(count: int, *names: str) -> ClaimRequest:
    run_ids = [os.urandom(16).hex() for _ in range(count)]
    return ClaimRequest(worker_id="w1", run_ids=run_ids, names=frozenset(names or ("send",)))


@pytest.mark.parametrize("limit", [None, 10])
async def test_a_request_that_comes_again_gets_the_same_tasks_from_wherever_they_are(
    spread: Ports, limit: int | None
) -> None:
    await spread.workers.register(spread.worker(), [Definition(name="send", concurrency=limit)], LEASE_MS)
    await spread.tasks.add([spread.task(queue=spread.queue_in(each)) for each in range(4)])
    request = wanted(2)

    first = await spread.tasks.claim(request)
    again = await spread.tasks.claim(request)

    assert len(first) == 2
    assert [(task.id, task.run_id) for task in again] == [(task.id, task.run_id) for task in first]


async def test_what_was_taken_in_a_second_look_is_given_again_too(spread: Ports) -> None:
    here, there = spread.queue_in(0), spread.queue_in(1)
    await spread.tasks.add([spread.task(queue=here) for _ in range(2)])
    await spread.tasks.add([spread.task(queue=there) for _ in range(2)])
    vanished = (await spread.tasks.add([spread.task(queue=here, priority=0)]))[0]
    await spread.link.ask(0, ("DEL", f"{spread.link.names[0].prefix}task:{vanished.id}"))
    request = wanted(4)

    first = await spread.tasks.claim(request)
    again = await spread.tasks.claim(request)

    assert len(first) == 4
    assert {task.id for task in again} == {task.id for task in first}


async def test_a_name_with_room_is_not_passed_over_for_one_without(spread: Ports) -> None:
    limits = [Definition(name="send", concurrency=1), Definition(name="build", concurrency=1)]
    await spread.workers.register(spread.worker(), limits, LEASE_MS)
    await spread.start(queue=spread.queue_in(0))
    await spread.tasks.add([spread.task(queue=spread.queue_in(each % 2)) for each in range(4)])
    [build] = await spread.tasks.add([spread.task(name="build", queue=spread.queue_in(0))])

    claimed = await spread.tasks.claim(wanted(3, "send", "build"))

    assert [task.id for task in claimed] == [build.id]


async def test_due_tasks_are_found_behind_very_many_that_nobody_does(spread: Ports) -> None:
    queue, now = spread.queue_in(1), spread.clock.now()
    await spread.tasks.add([spread.task(name="unknown", queue=queue, run_after=now + 1000) for _ in range(1000)])
    [due] = await spread.tasks.add([spread.task(queue=queue, run_after=now + 2000)])
    spread.clock.advance(10)

    rounds = [await spread.tasks.claim(wanted(1)) for _ in range(2)]

    assert [task.id for tasks in rounds for task in tasks] == [due.id]
