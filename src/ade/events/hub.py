"""The subscription hub: distributes events to subscribers.

The hub does no I/O. No event can arrive between two steps of a subscriber, so none is delivered twice or skipped when
the subscriber moves from the log to the buffer, and from the buffer to live events.
"""

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


class Subscription:
    """Items for one reader, in order: `async for item in subscription`. Created by `EventFeed.subscribe`.

    A live subscription receives events as they arrive. A subscription that reads too slowly, or starts in the past, is
    not live: when its items are consumed, it takes missed events from the buffer or from a page of the log, until it
    has caught up. Waiting for the next item can be cancelled and resumed without losing items.
    """

    def __init__(
        self, hub: "SubscriptionHub", event_filter: EventFilter, place: FeedPosition | None, *, limit: int, now: int
    ) -> None:
        self.event_filter = event_filter
        self.place = place  # all matching events up to here were added; None: starts with the first read of the log
        self.is_live = False
        self.reports_gaps = place is None or place.seq > 0  # with `after=0`, trimmed events are not a gap
        self.matches = compile_filter(event_filter)
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
                await asyncio.sleep(0)  # a long search with few matches must not block the event loop
                continue
            await self._woken.wait()
        item = self._pending.popleft()
        if isinstance(item, EventBatch):
            self._pending_events -= len(item.entries)
        return item

    def close(self) -> None:
        """Leave the feed and discard pending items."""
        self._hub.leave(self)
        self._pending.clear()
        self._is_over = True
        self.wake()

    def wake(self) -> None:
        self._woken.set()

    def is_idle(self) -> bool:
        """Return whether the subscriber is waiting without pending items."""
        return not self._pending and not self._is_over

    def offer(self, batch: EventBatch, now: int) -> bool:
        """Add new events that the subscriber does not have yet. Returns False if its buffer is full."""
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
        """Add an end after the pending items."""
        if not self._is_over:
            self.put(FeedEnd(reason), now)
            self._is_over = True


class SubscriberGroup:
    """Live subscribers with the same filter. The filter is evaluated once per event for all of them."""

    def __init__(self, event_filter: EventFilter) -> None:
        self.event_filter = event_filter
        self.matches = compile_filter(event_filter)
        self.members: dict[Subscription, None] = {}


class SubscriberGroups:
    """All groups. Groups that filter by task are indexed by task ID, so that idle ones cost nothing."""

    def __init__(self) -> None:
        self._groups: dict[EventFilter, SubscriberGroup] = {}
        self._of_any_task: dict[SubscriberGroup, None] = {}
        self._of_task: dict[str, dict[SubscriberGroup, None]] = {}

    def join(self, subscription: Subscription) -> None:
        group = self._groups.get(subscription.event_filter)
        if group is None:
            group = self._groups[subscription.event_filter] = SubscriberGroup(subscription.event_filter)
            for task_id in group.event_filter.task_ids:
                self._of_task.setdefault(task_id, {})[group] = None
            if not group.event_filter.task_ids:
                self._of_any_task[group] = None
        group.members[subscription] = None

    def leave(self, subscription: Subscription) -> None:
        group = self._groups.get(subscription.event_filter)
        if group is None:
            return
        group.members.pop(subscription, None)
        if not group.members:
            del self._groups[group.event_filter]
            self._of_any_task.pop(group, None)
            for task_id in group.event_filter.task_ids:
                others = self._of_task[task_id]
                del others[group]
                if not others:
                    del self._of_task[task_id]

    def members(self) -> list[Subscription]:
        return [member for group in self._groups.values() for member in group.members]

    def sorted_out(self, entries: Sequence[FeedEntry]) -> Iterator[tuple[list[Subscription], EventBatch]]:
        """Yield the subscribers of each group with the events they receive."""
        for group in self._touched(entries):
            event_filter = [entry for entry in entries if group.matches(entry.event)]
            if event_filter:
                yield list(group.members), EventBatch(event_filter)

    def _touched(self, entries: Sequence[FeedEntry]) -> dict[SubscriberGroup, None]:
        touched = dict(self._of_any_task)
        if self._of_task:
            for task_id in {task_of(entry.event) for entry in entries}:
                touched |= self._of_task.get(task_id or "", {})
        return touched


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """Limits of a feed. Events that are not in memory are read from the log: low limits cost time, not events."""

    buffer: int = 10_000  # newest events kept for all subscribers; temporarily up to twice as many
    pending: int = 1_000  # pending events per subscriber before it falls behind
    page: int = 500  # events per read of the log
    readers: int = 4  # concurrent page reads for subscribers that are behind the buffer
    heartbeat_s: float = 15.0
    poll_s: float = 0.3  # poll interval: not every event sends a wake-up
    pace_s: float = 0.02  # minimum time between reads, so that many wake-ups cause few reads

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} must be above 0, not {getattr(self, field.name)}")
        if self.pace_s > self.poll_s:
            raise ValueError(f"pace_s ({self.pace_s}) must not be above poll_s ({self.poll_s})")


class SubscriptionHub:
    """The shared buffer of a feed, and all subscribers."""

    def __init__(self, options: FeedOptions, steady: Callable[[], int]) -> None:
        self.buffer = EventBuffer(options.buffer)
        self.known_at: int | None = None  # events after the ring's position happened at this moment or later
        self.asked = asyncio.Event()  # a subscriber waits for a page
        self._options = options
        self._steady = steady
        self._is_begun = False
        self._ended: str | None = None
        self._subscriptions: dict[Subscription, None] = {}
        self._live = SubscriberGroups()
        self._waiting: dict[Subscription, None] = {}  # in order of their requests
        self._being_served: set[Subscription] = set()

    def __len__(self) -> int:
        return len(self._subscriptions)

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    def subscribe(self, event_filter: EventFilter, after: int | None) -> Subscription:
        """Add a subscriber; see `EventFeed.subscribe`."""
        place = None if after is None else FeedPosition(after)
        if place is None and self._is_begun:
            place = self._here()
        limit, now = self._options.pending, self._steady()
        subscription = Subscription(self, event_filter, place, limit=limit, now=now)
        if self._ended is not None:
            subscription.end(self._ended, now)
            return subscription
        self._subscriptions[subscription] = None
        if after is None and place is not None:
            subscription.put(FeedHeartbeat(place.seq), now)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Remove a subscriber."""
        self._subscriptions.pop(subscription, None)
        self._waiting.pop(subscription, None)
        self._live.leave(subscription)
        subscription.is_live = False

    def begin(self, buffer: EventBuffer, known_at: int) -> None:
        """Start, or restart after the log was unreadable for too long; then all subscribers must catch up."""
        for subscription in self._live.members():
            self._fall_behind(subscription, self._here())
        self.buffer, self.known_at, self._is_begun = buffer, known_at, True
        for subscription in self._subscriptions:
            if subscription.place is None:
                subscription.place = self._here()
                subscription.put(FeedHeartbeat(buffer.position), self._steady())
            subscription.wake()

    def spread(self, entries: Sequence[FeedEntry], known_at: int) -> None:
        """Add the next events of the log to the buffer and pass them to live subscribers that match."""
        before, now = self._here(), self._steady()
        self.buffer.add(entries)
        self.known_at = known_at
        if not entries:
            return
        for subscriptions, batch in self._live.sorted_out(entries):
            for subscription in subscriptions:
                if not subscription.offer(batch, now):
                    self._fall_behind(subscription, before)

    def refill(self, subscription: Subscription) -> bool:
        """Let a subscriber that is not live and has no pending items catch up. Returns False if it must wait.

        It takes events from the buffer, requests a page of the log, or has caught up and becomes live.
        """
        place = subscription.place
        if not self._is_begun or place is None:
            return False
        if not self.buffer.holds(place.seq):
            if subscription not in self._being_served:
                self._waiting[subscription] = None
                self.asked.set()
            return False
        entries = self.buffer.behind(place.seq, self._options.pending)
        if not entries:
            self._go_live(subscription)
            return False
        subscription.place = FeedPosition(entries[-1].seq, entries[-1].event.at)
        subscription.reports_gaps = True
        self._give(subscription, entries)
        return True

    def next_waiting(self) -> Subscription | None:
        """Return the subscriber that has waited longest for a page. It cannot request another one until `release`."""
        subscription = next(iter(self._waiting), None)
        if subscription is None:
            self.asked.clear()
        else:
            del self._waiting[subscription]
            self._being_served.add(subscription)
        return subscription

    def release(self, subscription: Subscription) -> None:
        """Let a subscriber request pages again, whether or not it was served."""
        self._being_served.discard(subscription)
        subscription.wake()

    def hand_out(self, page: LogPage, first: Subscription) -> None:
        """Pass a page to the subscriber it was read for, and to all waiting subscribers it helps."""
        helped = [each for each in self._waiting if each.place and page.after <= each.place.seq < page.end]
        for subscription in (first, *helped):
            self._waiting.pop(subscription, None)
            place = subscription.place
            if place is None or subscription.is_live or subscription not in self._subscriptions:
                continue  # it has left, or caught up from the buffer meanwhile
            part = portion(page, place)
            subscription.place = part.place
            if part.gap is not None and subscription.reports_gaps:
                subscription.put(part.gap, self._steady())
            subscription.reports_gaps |= (part.place.known_at or 0) >= page.retained_since
            self._give(subscription, part.entries)
            if part.place.seq >= self.buffer.position:
                self._go_live(subscription)
            subscription.wake()

    def set_back(self, subscription: Subscription) -> None:
        """Reset a position beyond the end of the log: a backup was restored, or the position is from another store."""
        here, place = self._here(), subscription.place
        if place is not None and place.seq > here.seq and subscription in self._subscriptions:
            subscription.put(Gap(here.seq, place.seq), self._steady())
            subscription.place = here

    def beat(self) -> int:
        """Send a heartbeat to each idle subscriber. Returns their number."""
        now = self._steady()
        latest = now - round(self._options.heartbeat_s * 1000)
        quiet = [each for each in self._subscriptions if each.quiet_since <= latest and each.is_idle()]
        for subscription in quiet:
            reached = subscription.place.seq if subscription.place else None
            if reached is not None and subscription.is_live:
                reached = max(reached, self.buffer.position)
            subscription.put(FeedHeartbeat(reached), now)
        return len(quiet)

    def end(self, reason: str) -> None:
        """Send an end to all current and later subscribers, after their pending items."""
        self._ended = reason
        for subscription in list(self._subscriptions):
            subscription.end(reason, self._steady())
            self.leave(subscription)

    def _here(self) -> FeedPosition:
        return FeedPosition(self.buffer.position, self.known_at)

    def _go_live(self, subscription: Subscription) -> None:
        subscription.is_live = subscription.reports_gaps = True
        self._live.join(subscription)

    def _fall_behind(self, subscription: Subscription, place: FeedPosition) -> None:
        self._live.leave(subscription)
        subscription.is_live = False
        if subscription.place is None or subscription.place.seq < place.seq:
            subscription.place = place
        subscription.wake()

    def _give(self, subscription: Subscription, entries: Sequence[FeedEntry]) -> None:
        event_filter = [entry for entry in entries if subscription.matches(entry.event)]
        if event_filter:
            subscription.put(EventBatch(event_filter), self._steady())
