"""Who gets what. No I/O in here: between two steps of a subscriber nothing can come in between, so nothing is given
twice or left out when it changes from the log to memory and from memory to what is live."""

import asyncio
from collections.abc import Callable, Sequence

from ade.core.feeds.filters import EventFilter
from ade.core.feeds.items import Batch, Entry, Gap, Heartbeat
from ade.core.feeds.pages import Page, Place, portion
from ade.core.feeds.ring import Ring
from ade.events.feed.groups import Groups
from ade.events.feed.options import FeedOptions
from ade.events.feed.subscription import Subscription


class Hub:
    """The shared memory of a feed, and all its subscribers."""

    def __init__(self, options: FeedOptions, steady: Callable[[], int]) -> None:
        self.ring = Ring(options.ring)
        self.known_at: int | None = None  # what is behind the ring's position happened at this moment or later
        self.asked = asyncio.Event()  # somebody wants a page
        self._options = options
        self._steady = steady
        self._is_begun = False
        self._ended: str | None = None
        self._everybody: dict[Subscription, None] = {}
        self._live = Groups()
        self._wanting: dict[Subscription, None] = {}  # in the order in which they asked
        self._being_served: set[Subscription] = set()

    def __len__(self) -> int:
        return len(self._everybody)

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    def subscribe(self, wanted: EventFilter, after: int | None) -> Subscription:
        place = None if after is None else Place(after)
        if place is None and self._is_begun:
            place = self._here()
        limit, now = self._options.pending, self._steady()
        subscription = Subscription(self, wanted, place, limit=limit, now=now)
        if self._ended is not None:
            subscription.end(self._ended, now)
            return subscription
        self._everybody[subscription] = None
        if after is None and place is not None:
            subscription.put(Heartbeat(place.seq), now)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        self._everybody.pop(subscription, None)
        self._wanting.pop(subscription, None)
        self._live.leave(subscription)
        subscription.is_live = False

    def begin(self, ring: Ring, known_at: int) -> None:
        """Start, or start anew after the log was out of sight for too long: then all must catch up."""
        for subscription in self._live.members():
            self._fall_behind(subscription, self._here())
        self.ring, self.known_at, self._is_begun = ring, known_at, True
        for subscription in self._everybody:
            if subscription.place is None:
                subscription.place = self._here()
                subscription.put(Heartbeat(ring.position), self._steady())
            subscription.wake()

    def spread(self, entries: Sequence[Entry], known_at: int) -> None:
        """The next events of the log: into memory, and to all live subscribers that want some of them."""
        before, now = self._here(), self._steady()
        self.ring.add(entries)
        self.known_at = known_at
        if not entries:
            return
        for subscriptions, batch in self._live.sorted_out(entries):
            for subscription in subscriptions:
                if not subscription.offer(batch, now):
                    self._fall_behind(subscription, before)

    def refill(self, subscription: Subscription) -> bool:
        """Let one that is not live and has read everything take what it missed; False when it must wait.

        It takes it from memory, asks for a page of the log, or has caught up and becomes live.
        """
        place = subscription.place
        if not self._is_begun or place is None:
            return False
        if not self.ring.holds(place.seq):
            if subscription not in self._being_served:
                self._wanting[subscription] = None
                self.asked.set()
            return False
        entries = self.ring.behind(place.seq, self._options.pending)
        if not entries:
            self._go_live(subscription)
            return False
        subscription.place = Place(entries[-1].seq, entries[-1].event.at)
        subscription.is_told_of_gaps = True
        self._give(subscription, entries)
        return True

    def next_wanting(self) -> Subscription | None:
        """Who has waited longest for a page. It leaves the line and can ask for nothing else until `release`."""
        subscription = next(iter(self._wanting), None)
        if subscription is None:
            self.asked.clear()
        else:
            del self._wanting[subscription]
            self._being_served.add(subscription)
        return subscription

    def release(self, subscription: Subscription) -> None:
        """It was served, or could not be: whatever it still wants, it asks for again."""
        self._being_served.discard(subscription)
        subscription.wake()

    def hand_out(self, page: Page, first: Subscription) -> None:
        """Give a page to the one it was read for and to all others in line that it helps."""
        helped = [each for each in self._wanting if each.place and page.after <= each.place.seq < page.end]
        for subscription in (first, *helped):
            self._wanting.pop(subscription, None)
            place = subscription.place
            if place is None or subscription.is_live or subscription not in self._everybody:
                continue  # it has gone, or memory has helped it meanwhile
            part = portion(page, place)
            subscription.place = part.place
            if part.gap is not None and subscription.is_told_of_gaps:
                subscription.put(part.gap, self._steady())
            subscription.is_told_of_gaps |= (part.place.known_at or 0) >= page.kept_since
            self._give(subscription, part.entries)
            if part.place.seq >= self.ring.position:
                self._go_live(subscription)
            subscription.wake()

    def set_back(self, subscription: Subscription) -> None:
        """Its place is behind the end of the log: an older backup was restored, or it was never ours."""
        here, place = self._here(), subscription.place
        if place is not None and place.seq > here.seq and subscription in self._everybody:
            subscription.put(Gap(here.seq, place.seq), self._steady())
            subscription.place = here

    def beat(self) -> int:
        """A heartbeat for each subscriber to whom nothing came for long; answers how many."""
        now = self._steady()
        latest = now - round(self._options.heartbeat_s * 1000)
        quiet = [each for each in self._everybody if each.quiet_since <= latest and each.is_idle()]
        for subscription in quiet:
            reached = subscription.place.seq if subscription.place else None
            if reached is not None and subscription.is_live:
                reached = max(reached, self.ring.position)
            subscription.put(Heartbeat(reached), now)
        return len(quiet)

    def end(self, reason: str) -> None:
        """Everybody gets an end behind what waits for him, also who comes later."""
        self._ended = reason
        for subscription in list(self._everybody):
            subscription.end(reason, self._steady())
            self.leave(subscription)

    def _here(self) -> Place:
        return Place(self.ring.position, self.known_at)

    def _go_live(self, subscription: Subscription) -> None:
        subscription.is_live = subscription.is_told_of_gaps = True
        self._live.join(subscription)

    def _fall_behind(self, subscription: Subscription, place: Place) -> None:
        self._live.leave(subscription)
        subscription.is_live = False
        if subscription.place is None or subscription.place.seq < place.seq:
            subscription.place = place
        subscription.wake()

    def _give(self, subscription: Subscription, entries: Sequence[Entry]) -> None:
        wanted = [entry for entry in entries if subscription.matches(entry.event)]
        if wanted:
            subscription.put(Batch(wanted), self._steady())
