"""Turns: one reads for all, and when the store is away all are told at the same time."""

import asyncio

import pytest

from ade.errors import StoreUnavailable
from ade.stores.wakeups import SingleFlight


class Store:
    """One that is away: each call ends in an error, once the test lets it."""

    def __init__(self) -> None:
        self.calls = 0
        self.gives_up = asyncio.Event()

    async def read(self) -> None:
        self.calls += 1
        await self.gives_up.wait()
        raise StoreUnavailable("no answer in time")


async def test_all_who_waited_for_one_that_failed_are_told_the_same() -> None:
    turn, store = SingleFlight(), Store()

    async def read() -> None:
        async with turn:
            await store.read()

    waiting = [asyncio.create_task(read()) for _ in range(50)]
    await asyncio.sleep(0)
    store.gives_up.set()
    told = await asyncio.gather(*waiting, return_exceptions=True)

    assert {(type(each), str(each)) for each in told} == {(StoreUnavailable, "no answer in time")}
    assert len(set(map(id, told))) == 50, "each has an error of his own"
    assert store.calls == 1
    with pytest.raises(StoreUnavailable):
        await read()
    assert store.calls == 2, "whoever comes later tries for himself"


async def test_what_is_wrong_with_one_is_not_told_to_others() -> None:
    turn, has_it, goes_on = SingleFlight(), asyncio.Event(), asyncio.Event()

    async def stumble() -> None:
        async with turn:
            has_it.set()
            await goes_on.wait()
            raise ValueError("a mistake of its own")

    async def walk() -> str:
        async with turn:
            return "through"

    stumbling = asyncio.create_task(stumble())
    await has_it.wait()
    walking, leaving = asyncio.create_task(walk()), asyncio.create_task(walk())
    await asyncio.sleep(0)
    leaving.cancel()
    goes_on.set()

    with pytest.raises(ValueError, match="its own"):
        await stumbling
    assert await walking == "through"
    assert await walk() == "through", "nobody has kept it"
