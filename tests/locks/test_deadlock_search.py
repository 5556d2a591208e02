"""Looking for rings of waiters: rare however many wait, and never where it is switched off. Time is the story's."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from ade.errors import DeadlockVictim, LockTimeout
from ade.locks.client import LockWaiters
from ade.testing import TestClock
from tests.domain import (
    LockLimits,
    LockMode,
    LockQuery,
    LockRequest,
    LockStore,
    StoreSettings,
    open_sqlite,
    validate_request,
)

MANY = LockLimits(waiters_per_resource=100_000)


class Looks:
    """A book of locks that counts how often somebody reads all of it."""

    def __init__(self, store: LockStore) -> None:
        self._store = store
        self.at: list[float] = []
        self.clock = TestClock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def find(self, query: LockQuery) -> list[LockRequest]:
        self.at.append(self.clock.steady() / 1000)
        return await self._store.find(query)


class Passing:
    """News never come: whoever waits for them finds that its time has passed, until the story is over."""

    def __init__(self, clock: TestClock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.steady() + seconds * 1000
        self.is_over = asyncio.Event()

    async def __call__(self, _news: asyncio.Event, timeout_s: float) -> None:
        if self._clock.steady() >= self._end:
            self.is_over.set()
            await asyncio.Event().wait()
        self._clock.advance(timeout_s)
        await asyncio.sleep(0)


@pytest.fixture
async def looks() -> AsyncIterator[Looks]:
    clock = TestClock()
    stores = await open_sqlite("memory://", StoreSettings(), clock)
    made = Looks(stores.locks)
    made.clock = clock
    yield made
    await stores.close()


def room(looks: Looks, passing: Passing, *, finds_rings: bool = True) -> LockWaiters:
    def time() -> float:
        return looks.clock.steady() / 1000

    async def does() -> bool:
        return finds_rings

    store: Any = looks
    return LockWaiters(store, finds_rings=does, randomness=lambda: 1.0, time=time, rest=passing)


async def asked(looks: Looks, scope: str, resource: str, *, wait_ms: int | None = None) -> LockRequest:
    request = validate_request(
        id=f"{scope}-{resource}", owner=scope, scope=scope, wanted=[(resource, LockMode.EXCLUSIVE)], ttl_ms=3_600_000
    )
    answer = await looks.acquire(request, wait_ms=wait_ms, limits=MANY)
    assert answer is not None
    return answer  # type: ignore[no-any-return]  # what a store answers


async def a_ring(looks: Looks, *, wait_ms: int | None) -> list[LockRequest]:
    """Ada and Bob each hold what the other one waits for."""
    await asked(looks, "ada", "db:a")
    await asked(looks, "bob", "db:b")
    return [await asked(looks, "ada", "db:b", wait_ms=wait_ms), await asked(looks, "bob", "db:a", wait_ms=wait_ms)]


def pauses(looks: Looks) -> list[float]:
    return [later - earlier for earlier, later in pairwise(looks.at)]


async def sent_home(waiting_room: LockWaiters, waiting: "list[asyncio.Task[LockRequest]]") -> None:
    assert not any(one.done() for one in waiting)
    await waiting_room.close()
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_three_hundred_who_wait_for_a_minute_cause_a_dozen_looks(looks: Looks) -> None:
    passing = Passing(looks.clock, 60)
    waiting_room = room(looks, passing)
    await asked(looks, "holder", "db:a")
    requests = [await asked(looks, f"w{number}", "db:a") for number in range(300)]
    waiting = [asyncio.create_task(waiting_room.wait(waiting_room.expect(one))) for one in requests]

    async with asyncio.timeout(300):
        await passing.is_over.wait()

    assert 10 <= len(looks.at) <= 13
    assert min(pauses(looks)) >= 4.9
    await sent_home(waiting_room, waiting)


async def test_newcomers_cause_one_look_a_second_at_most(looks: Looks) -> None:
    passing = Passing(looks.clock, 60)
    waiting_room = room(looks, passing)
    await asked(looks, "holder", "db:a")
    waiting: list[asyncio.Task[LockRequest]] = []
    async with asyncio.timeout(300):
        while not passing.is_over.is_set():
            request = await asked(looks, f"w{len(waiting)}", "db:a")
            waiting.append(asyncio.create_task(waiting_room.wait(waiting_room.expect(request))))

    assert min(pauses(looks)) >= 0.99
    await sent_home(waiting_room, waiting)


async def test_a_ring_is_opened_after_a_second_and_a_second_look(looks: Looks) -> None:
    passing = Passing(looks.clock, 60)
    began = looks.clock.steady() / 1000
    waiting_room = room(looks, passing)
    waiting = [
        asyncio.create_task(waiting_room.wait(waiting_room.expect(one, wait_ms=20_000)))
        for one in await a_ring(looks, wait_ms=20_000)
    ]

    async with asyncio.timeout(300):
        ends = await asyncio.gather(*waiting, return_exceptions=True)

    assert sorted(type(end).__name__ for end in ends) == [DeadlockVictim.__name__, LockTimeout.__name__]
    assert [round(at - began, 2) for at in looks.at[:2]] == [1.0, 1.25]
    await waiting_room.close()


async def test_a_ring_stays_where_nobody_is_to_look_for_one(looks: Looks) -> None:
    """Those who wait for a while only are let go when it is over."""
    passing = Passing(looks.clock, 60)
    waiting_room = room(looks, passing, finds_rings=False)
    waiting = [
        asyncio.create_task(waiting_room.wait(waiting_room.expect(one, wait_ms=20_000)))
        for one in await a_ring(looks, wait_ms=20_000)
    ]

    async with asyncio.timeout(300):
        ends = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(end) for end in ends] == [LockTimeout, LockTimeout]
    assert looks.at == []
    await waiting_room.close()
