"""Who gets what. No I/O in here: between two steps of a subscriber nothing can come in between, so nothing is given
twice or left out when it changes from the log to memory and from memory to what is live."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

from ade.events.feed_items import (
    EventBatch,
    EventBuffer,
    FeedEnd,
    FeedEntry,
    FeedHeartbeat,
    FeedPosition,
    Gap,
    Item,
    LogPage,
    portion,
)
from ade.events.filters import EventFilter, compile_filter, task_of

# One subscriber: what waits for it, and how far it has come.


class Subscription:
    """Items for one reader, in order: `async for item in subscription`. Made by `EventFeed.subscribe`.

    A live one is given events as they come. One that reads too slowly, or begins in the past, is not live: whenever it
    has read what it has, it takes what it missed from memory, or is given a page of the log, until it has caught up.
    Waiting for the next item may be cancelled and begun again; nothing is lost.
    """

    def __init__(
        self, hub: "SubscriptionHub", wanted: EventFilter, place: FeedPosition | None, *, limit: int, now: int
    ) -> None:
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
        if isinstance(item, EventBatch):
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

    def offer(self, batch: EventBatch, now: int) -> bool:
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
        if isinstance(item, EventBatch):
            self._pending_events += len(item.entries)
        self.quiet_since = now
        self.wake()

    def end(self, reason: str, now: int) -> None:
        if not self._is_over:
            self.put(FeedEnd(reason), now)
            self._is_over = True


# Live subscribers by what they want: each filter is asked once for a portion of events, however many share it.


class SubscriberGroup:
    """Subscribers with one filter."""

    def __init__(self, wanted: EventFilter) -> None:
        self.wanted = wanted
        self.matches = compile_filter(wanted)
        self.members: dict[Subscription, None] = {}


class SubscriberGroups:
    """All groups; those that want certain tasks are found by the tasks, so that idle ones cost nothing."""

    def __init__(self) -> None:
        self._groups: dict[EventFilter, SubscriberGroup] = {}
        self._of_any_task: dict[SubscriberGroup, None] = {}
        self._of_task: dict[str, dict[SubscriberGroup, None]] = {}

    def join(self, subscription: Subscription) -> None:
        group = self._groups.get(subscription.wanted)
        if group is None:
            group = self._groups[subscription.wanted] = SubscriberGroup(subscription.wanted)
            for task_id in group.wanted.task_ids:
                self._of_task.setdefault(task_id, {})[group] = None
            if not group.wanted.task_ids:
                self._of_any_task[group] = None
        group.members[subscription] = None

    def leave(self, subscription: Subscription) -> None:
        group = self._groups.get(subscription.wanted)
        if group is None:
            return
        group.members.pop(subscription, None)
        if not group.members:
            del self._groups[group.wanted]
            self._of_any_task.pop(group, None)
            for task_id in group.wanted.task_ids:
                others = self._of_task[task_id]
                del others[group]
                if not others:
                    del self._of_task[task_id]

    def members(self) -> list[Subscription]:
        return [member for group in self._groups.values() for member in group.members]

    def sorted_out(self, entries: Sequence[FeedEntry]) -> Iterator[tuple[list[Subscription], EventBatch]]:
        """Who gets which of these events."""
        for group in self._touched(entries):
            wanted = [entry for entry in entries if group.matches(entry.event)]
            if wanted:
                yield list(group.members), EventBatch(wanted)

    def _touched(self, entries: Sequence[FeedEntry]) -> dict[SubscriberGroup, None]:
        touched = dict(self._of_any_task)
        if self._of_task:
            for task_id in {task_of(entry.event) for entry in entries}:
                touched |= self._of_task.get(task_id or "", {})
        return touched


# How much the feed keeps in memory and how often it looks.


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """The bounds of a feed. What is not in memory is read from the log, so they cost time and never events."""

    ring: int = 10_000  # newest events that are kept for all; up to twice as many for a while
    pending: int = 1_000  # events that wait for one subscriber before it falls behind
    page: int = 500  # events read from the log at once
    readers: int = 4  # pages that are read at once for those who are behind what is in memory
    heartbeat_s: float = 15.0
    poll_s: float = 0.3  # how often to look without a hint: not every event rings
    pace_s: float = 0.02  # the shortest time from look to look, so that hints by the thousand make few reads

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} must be above 0, not {getattr(self, field.name)}")
        if self.pace_s > self.poll_s:
            raise ValueError(f"pace_s ({self.pace_s}) must not be above poll_s ({self.poll_s})")


class SubscriptionHub:
    """The shared memory of a feed, and all its subscribers."""

    def __init__(self, options: FeedOptions, steady: Callable[[], int]) -> None:
        self.ring = EventBuffer(options.ring)
        self.known_at: int | None = None  # what is behind the ring's position happened at this moment or later
        self.asked = asyncio.Event()  # somebody wants a page
        self._options = options
        self._steady = steady
        self._is_begun = False
        self._ended: str | None = None
        self._everybody: dict[Subscription, None] = {}
        self._live = SubscriberGroups()
        self._wanting: dict[Subscription, None] = {}  # in the order in which they asked
        self._being_served: set[Subscription] = set()

    def __len__(self) -> int:
        return len(self._everybody)

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    def subscribe(self, wanted: EventFilter, after: int | None) -> Subscription:
        place = None if after is None else FeedPosition(after)
        if place is None and self._is_begun:
            place = self._here()
        limit, now = self._options.pending, self._steady()
        subscription = Subscription(self, wanted, place, limit=limit, now=now)
        if self._ended is not None:
            subscription.end(self._ended, now)
            return subscription
        self._everybody[subscription] = None
        if after is None and place is not None:
            subscription.put(FeedHeartbeat(place.seq), now)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        self._everybody.pop(subscription, None)
        self._wanting.pop(subscription, None)
        self._live.leave(subscription)
        subscription.is_live = False

    def begin(self, ring: EventBuffer, known_at: int) -> None:
        """Start, or start anew after the log was out of sight for too long: then all must catch up."""
        for subscription in self._live.members():
            self._fall_behind(subscription, self._here())
        self.ring, self.known_at, self._is_begun = ring, known_at, True
        for subscription in self._everybody:
            if subscription.place is None:
                subscription.place = self._here()
                subscription.put(FeedHeartbeat(ring.position), self._steady())
            subscription.wake()

    def spread(self, entries: Sequence[FeedEntry], known_at: int) -> None:
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
        subscription.place = FeedPosition(entries[-1].seq, entries[-1].event.at)
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

    def hand_out(self, page: LogPage, first: Subscription) -> None:
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
            subscription.put(FeedHeartbeat(reached), now)
        return len(quiet)

    def end(self, reason: str) -> None:
        """Everybody gets an end behind what waits for him, also who comes later."""
        self._ended = reason
        for subscription in list(self._everybody):
            subscription.end(reason, self._steady())
            self.leave(subscription)

    def _here(self) -> FeedPosition:
        return FeedPosition(self.ring.position, self.known_at)

    def _go_live(self, subscription: Subscription) -> None:
        subscription.is_live = subscription.is_told_of_gaps = True
        self._live.join(subscription)

    def _fall_behind(self, subscription: Subscription, place: FeedPosition) -> None:
        self._live.leave(subscription)
        subscription.is_live = False
        if subscription.place is None or subscription.place.seq < place.seq:
            subscription.place = place
        subscription.wake()

    def _give(self, subscription: Subscription, entries: Sequence[FeedEntry]) -> None:
        wanted = [entry for entry in entries if subscription.matches(entry.event)]
        if wanted:
            subscription.put(EventBatch(wanted), self._steady())
