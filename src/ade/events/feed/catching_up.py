"""Pages of the log for subscribers that are behind what is in memory. How many are read at once is bounded for all."""

from collections.abc import Callable

from ade.core.events import Event
from ade.core.feeds.items import Entry
from ade.core.feeds.pages import Page, Place
from ade.events.feed.hub import Hub
from ade.events.feed.options import FeedOptions
from ade.events.feed.subscription import Subscription
from ade.ports import EventLog


class CatchUp:
    """Reads for who has waited longest; whoever stands in line near that place is given the same page."""

    def __init__(
        self,
        log: EventLog,
        hub: Hub,
        kept_since: Callable[[], int],
        options: FeedOptions,
        entry: Callable[[Event], Entry],
    ) -> None:
        self._log = log
        self._hub = hub
        self._kept_since = kept_since
        self._limit = options.page
        self._entry = entry

    async def serve_next(self) -> bool:
        """Read one page for one subscriber; False when nobody is in line."""
        subscription = self._hub.next_wanting()
        if subscription is None or subscription.place is None:
            return subscription is not None
        try:
            await self._serve(subscription, subscription.place)
        finally:
            self._hub.release(subscription)
        return True

    async def _serve(self, subscription: Subscription, place: Place) -> None:
        floor, position = self._hub.ring.floor, self._hub.ring.position
        if place.seq >= max(floor, position):  # it comes from a process whose reader was ahead of ours
            subscription.place = place._replace(known_at=self._hub.known_at)
        # One event more is asked for, the one at the place: its time tells how old the place is.
        events = await self._log.read(max(place.seq - 1, 0), self._limit + 1)
        if not events and place.seq > max(position, await self._log.last_seq()):
            self._hub.set_back(subscription)
            return
        end, trimmed_to = (events[-1].seq if events else 0), 0
        if len(events) <= self._limit:  # up to where the reader had come, that is all there is
            end, trimmed_to = max(end, min(floor, position)), floor
        memory = min(self._hub.ring.floor, self._hub.ring.position)
        if place.seq < memory < end:  # from there on memory knows better: nothing was trimmed from it
            events = [event for event in events if event.seq <= memory]
            end = trimmed_to = memory
        entries = [self._entry(event) for event in events]
        self._hub.hand_out(Page(place.seq, entries, end, trimmed_to, self._kept_since()), subscription)
