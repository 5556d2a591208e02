"""A feed that moves only when a story says so, and what happens around it."""

import asyncio
from collections.abc import Sequence

from ade.events.feed import EventFeed
from ade.events.feed_items import EventBatch, FeedHeartbeat, Item
from ade.events.filters import EVERYTHING, EventFilter
from ade.events.hub import FeedOptions, Subscription
from ade.testing import TestClock
from tests.domain import Event, Queue, Stores

SMALL = FeedOptions(buffer=4, pending=3, page=2, readers=2, heartbeat_s=15)
KEPT_S = 1_000.0


class House:
    """A store and a feed on it. Events are kept for 1,000 s, then they may be trimmed."""

    def __init__(self, stores: Stores, clock: TestClock, options: FeedOptions = SMALL) -> None:
        self.stores = stores
        self.clock = clock
        self.options = options
        self.feed = self.another_feed()

    def another_feed(self) -> EventFeed:
        """A feed of another process, or of the same one after a restart."""
        return EventFeed(
            self.stores.events,
            self.stores.wakeups,
            self.clock,
            retained_since=lambda: self.clock.now() - round(KEPT_S * 1000),
            options=self.options,
        )

    async def happen(self, *types: str) -> None:
        for kind in types:
            event = Event(type=kind, at=self.clock.now(), payload={"queue": "q"})
            await self.stores.queues.configure(Queue(name="q"), event)

    async def trim(self) -> int:
        return await self.stores.events.trim(self.clock.now() - round(KEPT_S * 1000), 1_000)

    def subscribe(self, *types: str, after: int | None = None) -> Subscription:
        wanted = EventFilter(types=frozenset(types)) if types else EVERYTHING
        return self.feed.subscribe(wanted, after)

    async def read(self, subscription: Subscription, most: int = 1_000) -> list[Item]:
        """What it can have now, pages of the log included, and no more."""
        items: list[Item] = []
        while len(items) < most:
            waiting = asyncio.ensure_future(anext(subscription))
            await settle()
            while not waiting.done() and await self.feed.catch_up():
                await settle()
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
                break
            try:
                items.append(waiting.result())
            except StopAsyncIteration:
                break
        return items

    async def join(self, *types: str) -> Subscription:
        """One who is live, and wants what happens from now on."""
        subscription = self.subscribe(*types)
        assert await self.read(subscription) == [FeedHeartbeat(self.feed.position)]
        assert subscription.is_live
        return subscription

    async def read_seqs(self, subscription: Subscription) -> list[int]:
        return seqs(await self.read(subscription))


async def settle() -> None:
    """Let whoever can go on without the store do so."""
    for _ in range(25):  # a search through a small memory in small steps takes some turns
        await asyncio.sleep(0)


def seqs(items: Sequence[Item]) -> list[int]:
    return [entry.seq for item in items if isinstance(item, EventBatch) for entry in item.entries]
