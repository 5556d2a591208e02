"""One subscriber: what waits for it, and how far it has come."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from ade.core.feeds.filters import EventFilter, compile_filter
from ade.core.feeds.items import Batch, End, Item
from ade.core.feeds.pages import Place

if TYPE_CHECKING:
    from ade.events.feed.hub import Hub


class Subscription:
    """Items for one reader, in order: `async for item in subscription`. Made by `EventFeed.subscribe`.

    A live one is given events as they come. One that reads too slowly, or begins in the past, is not live: whenever it
    has read what it has, it takes what it missed from memory, or is given a page of the log, until it has caught up.
    Waiting for the next item may be cancelled and begun again; nothing is lost.
    """

    def __init__(self, hub: "Hub", wanted: EventFilter, place: Place | None, *, limit: int, now: int) -> None:
        self.wanted = wanted
        self.place = place  # everything wanted up to here was put in; None: begins where the log is read first
        self.is_live = False
        self.is_told_of_gaps = place is None or place.seq > 0  # who wants all that is kept misses nothing of the past
        self.matches = compile_filter(wanted)
        self.quiet_since = now
        self._hub = hub
        self._limit = limit
        self._pending: deque[Item] = deque()
        self._pending_events = 0
        self._is_over = False
        self._woken = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        while not self._pending:
            if self._is_over:
                raise StopAsyncIteration
            self._woken.clear()
            if not self.is_live and self._hub.refill(self):
                await asyncio.sleep(0)  # a long search for few events lets others have their turn
                continue
            await self._woken.wait()
        item = self._pending.popleft()
        if isinstance(item, Batch):
            self._pending_events -= len(item.entries)
        return item

    def close(self) -> None:
        """Leave the feed. What waits is thrown away."""
        self._hub.leave(self)
        self._pending.clear()
        self._is_over = True
        self.wake()

    def wake(self) -> None:
        self._woken.set()

    def is_idle(self) -> bool:
        """Whether it waits and there is nothing for it."""
        return not self._pending and not self._is_over

    def offer(self, batch: Batch, now: int) -> bool:
        """Put in news as they come; False when there is no room. What it already has is left out."""
        rest = batch.behind(self.place.seq) if self.place else batch
        if rest is None:
            return True
        if self._pending_events + len(rest.entries) > self._limit:
            return False
        self.put(rest, now)
        return True

    def put(self, item: Item, now: int) -> None:
        self._pending.append(item)
        if isinstance(item, Batch):
            self._pending_events += len(item.entries)
        self.quiet_since = now
        self.wake()

    def end(self, reason: str, now: int) -> None:
        if not self._is_over:
            self.put(End(reason), now)
            self._is_over = True
