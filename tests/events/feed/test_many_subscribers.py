"""A thousand subscribers of one process: all get what they want, and the store is read for all of them at once."""

import asyncio
from collections.abc import Mapping

from ade.events.feed import EventFeed
from ade.events.feed_items import FeedEnd
from ade.events.filters import compile_filter
from ade.events.hub import FeedOptions, Subscription
from ade.testing import TestClock
from tests.domain import Event, Stores
from tests.events.feed.manual_feed import House, seqs

KINDS = ("task.created", "task.claimed", "task.succeeded", "lock.acquired")
WANTED = ((), ("task.*",), ("lock.*",), ("task.created", "task.succeeded"))
SUBSCRIBERS, EVENTS = 1_000, 120
COUNTS = (EVENTS, EVENTS * 3 // 4, EVENTS // 4, EVENTS // 2)  # how many of them that is


class CountedReads:
    """The log of a store, and how often it was read."""

    def __init__(self, stores: Stores) -> None:
        self.reads = 0
        self._events = stores.events

    async def read(self, after: int, limit: int, *, task_id: str | None = None) -> list[Event]:
        self.reads += 1
        return await self._events.read(after, limit, task_id=task_id)

    async def newest(self, limit: int) -> list[Event]:
        return await self._events.newest(limit)

    async def last_seq(self) -> int:
        return await self._events.last_seq()

    async def advance(self, name: str, seq: int) -> None:
        await self._events.advance(name, seq)

    async def cursors(self) -> Mapping[str, int]:
        return await self._events.cursors()

    async def trim(self, before_ms: int, limit: int) -> int:
        return await self._events.trim(before_ms, limit)


async def read_on(subscription: Subscription, taken: list[int], count: int, pauses: int) -> None:
    """Read until there are so many, and look away in between."""
    async for item in subscription:
        taken += seqs([item])
        if len(taken) >= count:
            return
        for _ in range(pauses):
            await asyncio.sleep(0)


async def test_a_thousand_subscribers_get_everything_they_want(stores: Stores, clock: TestClock) -> None:
    log = CountedReads(stores)
    house = House(stores, clock)
    options = FeedOptions(buffer=100, pending=50, page=50, pace_s=0.001, poll_s=0.1)
    house.feed = EventFeed(log, stores.wakeups, clock, retained_since=lambda: 0, options=options)
    await house.feed.step()
    running = asyncio.create_task(house.feed.run())
    subscriptions = [house.subscribe(*WANTED[number % 4], after=0) for number in range(SUBSCRIBERS)]
    taken: list[list[int]] = [[] for _ in subscriptions]
    reading = [
        asyncio.create_task(read_on(subscription, taken[number], COUNTS[number % 4], pauses=number % 7))
        for number, subscription in enumerate(subscriptions)
    ]
    for number in range(EVENTS):
        await house.happen(KINDS[number % 4])
    everything = await stores.events.read(0, 10_000)
    async with asyncio.timeout(180):
        await asyncio.gather(*reading)
    house.feed.close("shutdown")
    await running
    for subscription, got in zip(subscriptions, taken, strict=True):
        matches = compile_filter(subscription.event_filter)
        assert got == [event.seq for event in everything if matches(event)]
        assert await anext(subscription) == FeedEnd("shutdown")
    assert log.reads < SUBSCRIBERS
    assert len(house.feed) == 0
