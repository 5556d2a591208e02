"""A lock that a server lends: waited for in turns, kept, and known to be lost."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import ade
from ade import Client, write
from ade.client.http_transport import HttpTransport
from ade.client.transport import OperationCall
from ade.errors import DeadlockVictim, InvalidLock, LockLost, LockTimeout, ServerUnreachable
from ade.locks.detector import DeadlockDetector
from ade.locks.http_client import HttpLock, HttpLockClient
from ade.locks.views import LockView
from ade.server.problems import Problem, error_of
from tests.domain import LockHolder, LockQuery, LockRequest, Role, validate_request
from tests.server.conftest import ServerHarness
from tests.stalls import undisturbed

REPO = "repo:app"


@asynccontextmanager
async def talking(server: ServerHarness) -> AsyncIterator[Client]:
    async with ade.connect(server.url, token=await server.token(Role.OPERATOR)) as client:
        yield client


async def locks_on(client: Client, resource: str) -> LockView | None:
    found = (await client.list_locks(resource=resource)).items
    return found[0] if found else None


def wanting(resource: str, ttl_ms: int) -> LockRequest:
    return validate_request(id=os.urandom(16).hex(), owner="me", scope="me", wanted=[write(resource)], ttl_ms=ttl_ms)


class Watched(HttpTransport):
    """Says when locks were renewed so often, so that nobody has to guess how far somebody is."""

    def __init__(self, url: str, token: str, count: int) -> None:
        super().__init__(url, token=token)
        self.left = count
        self.is_renewed = asyncio.Event()

    async def call(self, ask: OperationCall) -> Any:
        self.left -= ask.operation == "renew_locks"
        if self.left == 0:
            self.is_renewed.set()
        return await super().call(ask)


@asynccontextmanager
async def watched(server: ServerHarness, count: int) -> AsyncIterator[tuple[Client, asyncio.Event]]:
    transport = Watched(server.url, await server.token(Role.OPERATOR), count)
    async with Client(transport) as client:
        yield client, transport.is_renewed


async def test_who_waits_keeps_his_place_from_turn_to_turn(server: ServerHarness) -> None:
    async with talking(server) as first, watched(server, 3) as (second, has_waited):

        async def work() -> int:
            async with HttpLock(second, [REPO], turn_s=0.05, owner="second") as mine:
                return mine.token()

        async with HttpLock(first, [REPO], owner="first") as held:
            token, waits = held.token(), asyncio.create_task(work())
            await has_waited.wait()
            seen = await locks_on(first, REPO)
            assert seen is not None
            assert [one.owner for one in seen.waiters] == ["the-operator/second"]

        assert await waits > token
        assert await locks_on(first, REPO) is None


async def test_who_has_waited_long_enough_leaves_the_line(server: ServerHarness) -> None:
    async with talking(server) as first, talking(server) as second, HttpLock(first, [REPO]):
        for wait, turn_s in ((0.0, 30.0), (0.1, 30.0), (0.2, 0.05)):
            with pytest.raises(LockTimeout):
                async with HttpLock(second, [REPO], wait=wait, turn_s=turn_s):
                    pytest.fail("somebody else has it")
        seen = await locks_on(first, REPO)
        assert seen is not None
        assert seen.waiters == []


async def test_a_lock_is_renewed_while_it_is_needed(server: ServerHarness) -> None:
    async with watched(server, 3) as (client, is_renewed), HttpLock(client, [REPO], ttl=3.0) as mine:
        await is_renewed.wait()
        assert mine.resources == (REPO,)
        seen = await locks_on(client, REPO)
        assert seen is not None
        assert seen.holders[0].heartbeats > 0


async def test_the_block_ends_when_the_lock_is_taken_away(server: ServerHarness) -> None:
    async def work(client: Client) -> None:
        async with HttpLock(client, [REPO], ttl=6.0) as mine:
            await client.force_release_lock(id=mine.id, reason="test")
            await asyncio.Event().wait()

    async with talking(server) as client:
        with pytest.raises(LockLost, match="taken away"):
            await work(client)
        assert await locks_on(client, REPO) is None
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


class BadLine(HttpTransport):
    """The answers to the first request of each kind get lost, or tell of a server that is about to stop."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token=token)
        self.lost: list[str] = []
        self.are_both_lost = asyncio.Event()

    async def call(self, ask: OperationCall) -> Any:
        answer = await super().call(ask)
        if ask.operation in ("acquire_locks", "renew_locks") and ask.operation not in self.lost:
            self.lost.append(ask.operation)
            if ask.operation == "renew_locks":
                self.are_both_lost.set()
                raise error_of(Problem(code="unavailable", status=503, title="no", detail="it is about to stop"))
            raise ServerUnreachable("it hung up", was_sent=True)
        return answer


async def test_lost_answers_cost_neither_a_lock_nor_a_place_in_line(server: ServerHarness) -> None:
    line = BadLine(server.url, await server.token(Role.OPERATOR))
    async with talking(server) as first, Client(line) as second:

        async def work() -> None:
            async with HttpLock(second, [REPO], turn_s=0.05, owner="second"):
                assert line.lost == ["acquire_locks", "renew_locks"]

        async with HttpLock(first, [REPO], owner="first"):
            working = asyncio.create_task(work())
            await line.are_both_lost.wait()
        await working
        assert await locks_on(first, REPO) is None


async def test_who_gives_up_leaves_the_line(server: ServerHarness) -> None:
    async with talking(server) as first, watched(server, 2) as (second, has_waited):

        async def work() -> None:
            async with HttpLock(second, [REPO], turn_s=0.05):
                pytest.fail("somebody else has it")

        async with HttpLock(first, [REPO]):
            waits = asyncio.create_task(work())
            await has_waited.wait()
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            seen = await locks_on(first, REPO)
            assert seen is not None
            assert seen.waiters == []


async def test_a_lock_that_is_entered_again_is_another_lock(server: ServerHarness) -> None:
    async with talking(server) as client:
        lock = HttpLock(client, [REPO])
        async with lock:
            first, token = lock.id, lock.token()
            with pytest.raises(InvalidLock, match="entered already"):
                await lock.__aenter__()
        async with lock:
            assert lock.id != first
            assert lock.token() > token
        assert await locks_on(client, REPO) is None


async def test_a_victim_of_a_deadlock_leaves_the_line(server: ServerHarness) -> None:
    """The server finds it between two turns of the waiting client."""
    other, locks = "repo:other", server.stores.locks
    async with watched(server, 2) as (first, first_waits), watched(server, 2) as (second, second_waits):

        async def cross(client: Client, mine: str, wanted: str) -> None:
            async with (
                HttpLock(client, [mine], scope=mine, turn_s=0.05),
                HttpLock(client, [wanted], scope=mine, turn_s=0.05),
            ):
                pass

        crossing = asyncio.gather(cross(first, REPO, other), cross(second, other, REPO), return_exceptions=True)
        await asyncio.wait_for(asyncio.gather(first_waits.wait(), second_waits.wait()), 60)
        detector = DeadlockDetector(locks)
        for _ in range(2):
            await detector.look(await locks.find(LockQuery(limit=10)))
        results = await asyncio.wait_for(crossing, 60)
        assert [type(one) for one in results if one is not None] == [DeadlockVictim]
        assert await locks.find(LockQuery(limit=10)) == []


class HalfDeaf(HttpTransport):
    """Renewals that name a certain lock get no answer."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token=token)
        self.silent_about = ""

    async def call(self, ask: OperationCall) -> Any:
        if ask.operation == "renew_locks" and self.silent_about in getattr(ask.body, "ids", ()):
            await asyncio.Event().wait()
        return await super().call(ask)


@pytest.mark.realtime
async def test_a_renewal_without_an_answer_costs_no_other_lock_its_lease(server: ServerHarness) -> None:
    transport = HalfDeaf(server.url, await server.token(Role.OPERATOR))
    async with Client(transport) as client:
        holder = LockHolder(HttpLockClient(client))
        try:
            locks = [await holder.acquire(wanting(f"repo:{number}", 3_000), wait_ms=0) for number in range(150)]
            transport.silent_about = locks[0].id
            lost = asyncio.Event()
            locks[0].when_lost(lost.set)
            await asyncio.wait_for(lost.wait(), 60)
            assert not any(lock.is_lost for lock in locks[100:])
        finally:
            await holder.close()


@pytest.mark.realtime
async def test_a_short_lease_is_renewed_beside_a_long_one(server: ServerHarness) -> None:
    async def story() -> None:
        async with watched(server, 2) as (client, is_renewed):
            holder = LockHolder(HttpLockClient(client))
            try:
                await holder.acquire(wanting("repo:long", 600_000), wait_ms=0)
                await asyncio.sleep(0)  # the job that renews it sleeps now, for ten seconds
                short = await holder.acquire(wanting("repo:short", 1_000), wait_ms=0)
                await is_renewed.wait()
                assert not short.is_lost
            finally:
                await holder.close()

    await undisturbed(story, stall_s=0.2)
