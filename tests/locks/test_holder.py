"""Locks as a program has them: granted in turn, kept alive, known to be lost, and never a ring for long."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from ade.errors import DeadlockVictim, LockLost, LockTimeout, StaleToken, StoreUnavailable, UpgradeDeadlock
from ade.locks.holder import Fence, HeldLock, LockHolder
from ade.locks.model import LockLimits, LockMode, LockRequest, LockSpec, lock_specs_of, read, write
from tests.domain import LockQuery, LockStore, StoreLockClient, Stores, set_value, validate_request
from tests.stalls import undisturbed
from tests.waiting import eventually

DB, REPO = "database:prod-db-01", "repo:app"


def wanting(*wanted: str | LockSpec, scope: str = "", priority: int = 5, ttl_ms: int = 30_000) -> LockRequest:
    request_id = os.urandom(16).hex()
    owner = scope or request_id
    return validate_request(
        id=request_id, owner=owner, scope=owner, wanted=lock_specs_of(wanted), priority=priority, ttl_ms=ttl_ms
    )


async def waiting_for(stores: Stores, resource: str, count: int) -> None:
    """Until so many stand in line."""
    assert stores.locks is not None

    async def is_so() -> bool:
        found = await stores.locks.find(LockQuery(namespace="default", resource=resource))
        return sum(one.is_waiting for one in found) == count

    await eventually(is_so)


async def both(*actions: "asyncio.Task[HeldLock]") -> Iterable[HeldLock | BaseException]:
    return await asyncio.gather(*actions, return_exceptions=True)


async def test_twenty_agents_have_it_one_after_the_other(holder: LockHolder[StoreLockClient]) -> None:
    inside, most, order = 0, 0, []

    async def agent(number: int) -> None:
        nonlocal inside, most
        held = await holder.acquire(wanting(DB), wait_ms=None)
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        order.append(held.token())
        inside -= 1
        await holder.release(held)

    async with asyncio.timeout(60):
        await asyncio.gather(*(agent(number) for number in range(20)))

    assert most == 1
    assert order == sorted(set(order)), "tokens rise from holder to holder"


async def test_readers_come_in_together(holder: LockHolder[StoreLockClient]) -> None:
    first = await holder.acquire(wanting(read(DB)), wait_ms=0)
    second = await holder.acquire(wanting(read(DB)), wait_ms=0)

    with pytest.raises(LockTimeout):
        await holder.acquire(wanting(write(DB)), wait_ms=0)
    assert not first.is_lost
    assert not second.is_lost


async def test_whoever_gives_up_leaves_the_line(stores: Stores, holder: LockHolder[StoreLockClient]) -> None:
    held = await holder.acquire(wanting(DB), wait_ms=0)
    impatient = asyncio.create_task(holder.acquire(wanting(DB), wait_ms=None))
    await waiting_for(stores, DB, 1)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)

    await waiting_for(stores, DB, 0)
    await holder.release(held)
    await holder.release(await holder.acquire(wanting(DB), wait_ms=0))
    assert await stores.locks.find(LockQuery()) == []


@pytest.mark.realtime
async def test_nobody_waits_longer_than_it_wants_to(holder: LockHolder[StoreLockClient]) -> None:
    await holder.acquire(wanting(DB), wait_ms=0)

    async with asyncio.timeout(60):
        with pytest.raises(LockTimeout):
            await holder.acquire(wanting(DB), wait_ms=200)


@pytest.mark.realtime
async def test_a_lock_is_kept_beyond_its_first_lease(stores: Stores, holder: LockHolder[StoreLockClient]) -> None:
    async def story() -> None:
        held = await holder.acquire(wanting(f"database:{os.urandom(4).hex()}", ttl_ms=1_000), wait_ms=0)
        await asyncio.sleep(1.5)

        held.check()
        assert held.grant.heartbeats >= 2

    await undisturbed(story, stall_s=0.2)


@pytest.mark.realtime
async def test_one_that_was_taken_away_is_known_to_be_lost(stores: Stores, holder: LockHolder[StoreLockClient]) -> None:
    await set_value(stores, "lock.heartbeat_interval_s", 0.1, actor="ada")
    held = await holder.acquire(wanting(DB), wait_ms=0)
    lost = asyncio.Event()
    held.when_lost(lost.set)
    assert stores.locks is not None
    await stores.locks.take_away("default", held.id, reason="stuck", by="ada")

    async with asyncio.timeout(60):
        await lost.wait()
    with pytest.raises(LockLost, match="taken away"):
        held.token()


@pytest.mark.realtime
async def test_no_answer_is_needed_to_know_that_it_is_lost(stores: Stores) -> None:
    class Silent:
        def __getattr__(self, name: str) -> object:
            async def never(*_: object, **__: object) -> None:
                await asyncio.Event().wait()

            return never

    async def story() -> None:
        holder = LockHolder(StoreLockClient(stores))
        held = await holder.acquire(wanting(f"database:{os.urandom(4).hex()}", ttl_ms=1_000), wait_ms=0)
        lost = asyncio.Event()
        held.when_lost(lost.set)

        holder.client.store = Silent()  # type: ignore[assignment]  # the store does not answer any more
        async with asyncio.timeout(1):
            await lost.wait()
        with pytest.raises(LockLost, match="not renewed in time"):
            held.check()

    await undisturbed(story, stall_s=0.1)


class TestWidening:
    async def test_a_reader_waits_for_the_others_and_then_writes(
        self, stores: Stores, holder: LockHolder[StoreLockClient]
    ) -> None:
        held = await holder.acquire(wanting(read(DB)), wait_ms=0)
        other = await holder.acquire(wanting(read(DB)), wait_ms=0)
        token = held.token()
        widening = asyncio.create_task(holder.upgrade(held, DB, upgrade_id="up", wait_ms=None))
        await waiting_for(stores, DB, 1)
        with pytest.raises(UpgradeDeadlock):
            await holder.upgrade(other, DB, upgrade_id="up2", wait_ms=None)
        await holder.release(other)

        async with asyncio.timeout(60):
            await widening
        assert held.mode(DB) is LockMode.EXCLUSIVE
        assert held.token() > token

    async def test_a_writer_that_reads_on_lets_readers_in(self, holder: LockHolder[StoreLockClient]) -> None:
        held = await holder.acquire(wanting(write(DB)), wait_ms=0)
        await holder.downgrade(held, DB)

        await holder.acquire(wanting(read(DB)), wait_ms=0)
        assert held.mode(DB) is LockMode.SHARED


@pytest.mark.realtime
class TestRings:
    @pytest.mark.parametrize("size", [2, 3, 5])
    async def test_agents_in_a_ring_are_set_free(self, holder: LockHolder[StoreLockClient], size: int) -> None:
        async def agent(number: int) -> str:
            scope = f"agent-{number}"
            mine = await holder.acquire(wanting(f"thing:{number}", scope=scope), wait_ms=None)
            ready[number].set()
            await asyncio.gather(*(one.wait() for one in ready))
            try:
                other = await holder.acquire(wanting(f"thing:{(number + 1) % size}", scope=scope), wait_ms=None)
                await holder.release(other)
                return "went on"
            except DeadlockVictim:
                return "gave way"
            finally:
                await holder.release(mine)

        ready = [asyncio.Event() for _ in range(size)]
        async with asyncio.timeout(60):
            ends = await asyncio.gather(*(agent(number) for number in range(size)))

        assert sorted(ends) == ["gave way"] + ["went on"] * (size - 1)

    async def test_rings_across_keepers_are_found_too(self, stores: Stores) -> None:
        """Each holder could be a process of its own: they meet only in the store."""
        one, two = LockHolder(StoreLockClient(stores)), LockHolder(StoreLockClient(stores))
        a = await one.acquire(wanting(DB, scope="a"), wait_ms=0)
        b = await two.acquire(wanting(REPO, scope="b"), wait_ms=0)
        crossing = [
            asyncio.create_task(one.acquire(wanting(REPO, scope="a"), wait_ms=None)),
            asyncio.create_task(two.acquire(wanting(DB, scope="b"), wait_ms=None)),
        ]
        async with asyncio.timeout(60):
            done, _ = await asyncio.wait(crossing, return_when=asyncio.FIRST_COMPLETED)
            [victim] = done
            assert isinstance(victim.exception(), DeadlockVictim)
            await (one.release(a) if victim is crossing[0] else two.release(b))
            [survivor] = set(crossing) - done
            await survivor
        await one.close()
        await two.close()


class TestFences:
    def test_a_write_that_comes_too_late_is_refused(self) -> None:
        fence = Fence()
        fence.check(DB, 10)
        fence.check(DB, 10)
        fence.check(DB, 11)

        with pytest.raises(StaleToken):
            fence.check(DB, 10)
        fence.check(REPO, 1)


async def test_a_store_that_is_away_is_told_and_nothing_is_held(stores: Stores) -> None:
    holder = LockHolder(StoreLockClient(stores))
    await stores.close()

    with pytest.raises(StoreUnavailable):
        await holder.acquire(wanting(DB), wait_ms=0)


class SlowToAnswer:
    """A store whose answer to a request comes only when much has happened since."""

    def __init__(self, store: LockStore) -> None:
        self._store = store
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def acquire(self, request: LockRequest, **more: Any) -> LockRequest | None:
        answer = await self._store.acquire(request, **more)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return answer


async def test_one_who_is_let_in_before_it_knows_that_it_has_to_wait_has_the_lock(stores: Stores) -> None:
    slow: Any = SlowToAnswer(stores.locks)
    holder = LockHolder(StoreLockClient(replace(stores, locks=slow)))
    held = await holder.acquire(wanting(DB), wait_ms=0)
    other = asyncio.create_task(holder.acquire(wanting(DB), wait_ms=None))  # so that somebody listens already
    await waiting_for(stores, DB, 1)

    async def everybody_leaves() -> None:
        await holder.release(held)
        await holder.release(await other)

    slow.meanwhile = everybody_leaves
    async with asyncio.timeout(60):
        late = await holder.acquire(wanting(DB), wait_ms=None)
    assert not late.is_lost
    await holder.close()


async def test_threads_without_a_loop_have_it_one_after_the_other(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    loop, tokens = asyncio.get_running_loop(), list[int]()

    def agent() -> None:
        request, asked_at = wanting(DB), time.monotonic()
        held = holder.acquire_blocking(request, wait_ms=None)
        if isinstance(held, LockRequest):
            held = asyncio.run_coroutine_threadsafe(holder.wait_in_line(held, asked_at, None), loop).result(60)
        tokens.append(held.token())
        holder.release_blocking(held)

    await asyncio.gather(*(asyncio.to_thread(agent) for _ in range(12)))
    assert len(tokens) == 12
    assert tokens == sorted(set(tokens))
    assert await stores.locks.find(LockQuery()) == []


async def test_what_a_thread_holds_is_renewed(stores: Stores, holder: LockHolder[StoreLockClient]) -> None:
    await set_value(stores, "lock.heartbeat_interval_s", 0.1, actor="ada")
    await holder.client.refresh()
    held = await asyncio.to_thread(holder.acquire_blocking, wanting(DB), wait_ms=0)
    assert isinstance(held, HeldLock)

    async def renewed() -> bool:
        [found] = await stores.locks.look("default", [held.id])
        assert found is not None, "it must not run out"
        return found.heartbeats >= 4

    await eventually(renewed)
    held.check()
    await asyncio.to_thread(holder.release_blocking, held)


async def test_a_thread_that_must_not_wait_is_told_so(holder: LockHolder[StoreLockClient]) -> None:
    held = await holder.acquire(wanting(DB), wait_ms=0)
    with pytest.raises(LockTimeout):
        await asyncio.to_thread(holder.acquire_blocking, wanting(DB), wait_ms=0)
    await holder.release(held)


async def test_who_waits_when_the_store_is_closed_is_told_so(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    held = await holder.acquire(wanting(DB), wait_ms=0)
    waiting = asyncio.create_task(holder.acquire(wanting(DB), wait_ms=None))
    await waiting_for(stores, DB, 1)

    await holder.close()

    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable, match="closed"):
            await waiting
    assert held.id not in [one.id for one in await stores.locks.find(LockQuery())]


async def test_a_grant_whose_answer_was_lost_is_had_for_a_whole_lease(
    stores: Stores, holder: LockHolder[StoreLockClient]
) -> None:
    request = wanting(DB, ttl_ms=60_000)
    await stores.locks.acquire(request, wait_ms=0, limits=LockLimits())
    before = stores.clock.steady()

    held = await holder.take(request)

    assert held is not None
    [found] = await stores.locks.look("default", [request.id])
    assert found is not None
    assert found.lease_until >= before + 60_000
    await holder.release(held)
