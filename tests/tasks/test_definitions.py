"""Definitions are remembered for a moment: names that nobody knows cost the store ten reads a second at most."""

import asyncio

import pytest

from ade.tasks.definitions import DefinitionCache
from tests.domain import Definition, Stores, Worker


class Hands:
    """A clock that goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        self.now += 1e-6
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


async def define(stores: Stores, name: str) -> None:
    worker = Worker(id="w", hostname="h", pid=1, started_at=0, version="0", names=(name,))
    await stores.workers.register(worker, [Definition(name=name)], 60_000)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def names(stores: Stores, hands: Hands) -> DefinitionCache:
    return DefinitionCache(stores, clock=hands.clock, sleep=hands.sleep)


async def test_what_is_known_is_read_once_a_second(stores: Stores, names: DefinitionCache, hands: Hands) -> None:
    await define(stores, "old")
    first = await names.including(["old"])
    assert await names.including(["old"]) is first
    hands.now += 1.0
    later = await names.including(["old"])
    assert (later is first, later == first) == (False, True)
    assert later["old"] is first["old"]


async def test_a_new_name_is_found_within_a_tenth_of_a_second(
    stores: Stores, names: DefinitionCache, hands: Hands
) -> None:
    assert await names.including([]) == {}
    begun = hands.now
    await define(stores, "new")
    assert "new" in await names.including(["new"])
    assert hands.now - begun < 0.11
    hands.now += 0.5
    begun = hands.now
    await define(stores, "newer")
    assert "newer" in await names.including(["newer"])
    assert hands.now - begun < 0.01  # nobody has read lately


async def test_names_that_do_not_exist_share_the_next_read(
    stores: Stores, names: DefinitionCache, hands: Hands
) -> None:
    await define(stores, "old")
    known = await names.including(["old"])
    told = await asyncio.gather(*(names.including([f"typo-{n}"]) for n in range(200)), names.including(["old"]))
    assert {id(each) for each in told[:-1]} == {id(told[0])}
    assert told[-1] is known  # who names what is known waits for nobody
    begun, seen = hands.now, [await names.including(["typo"]) for _ in range(20)]
    assert len({id(each) for each in seen}) == 20
    assert hands.now - begun >= 1.9


async def test_a_read_that_was_given_up_keeps_nobody_out(stores: Stores, hands: Hands) -> None:
    asleep = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if not asleep.is_set():
            asleep.set()
            await asyncio.Event().wait()
        await hands.sleep(seconds)

    names = DefinitionCache(stores, clock=hands.clock, sleep=sleep)
    await names.including([])
    first = asyncio.create_task(names.including(["new"]))
    await asleep.wait()
    await define(stores, "new")
    second = asyncio.create_task(names.including(["new"]))
    first.cancel()
    assert "new" in await second
