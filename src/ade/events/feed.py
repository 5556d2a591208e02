"""The live event feed of a process: a log reader, catch-up reads for slow subscribers, and subscriptions."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from ade.errors import AdeError
from ade.events.feed_items import EventBuffer, FeedEntry, FeedPosition, LogPage
from ade.events.filters import EVERYTHING, EventFilter
from ade.events.hub import FeedOptions, Subscription, SubscriptionHub
from ade.events.model import Event
from ade.events.sse import event_block
from ade.logs import Log
from ade.stores.ports import AGENT, DONE, INBOX, LOCK, LOST, RULES, STOP, WORK, Clock, EventLog, Wakeups


class LogFollower:
    """The only log reader of a process: follows the log to its end and passes events to the hub.

    `read` returns an event only when no event can still be committed before it, so its last seq is a safe position.
    This does not hold for `newest` and `last_seq`, which can run ahead and only determine where to start.
    """

    def __init__(
        self,
        log: EventLog,
        hub: SubscriptionHub,
        clock: Clock,
        retained_since: Callable[[], int],
        options: FeedOptions,
        entry: Callable[[Event], FeedEntry],
    ) -> None:
        self._log = log
        self._hub = hub
        self._clock = clock
        self._retained_since = retained_since
        self._options = options
        self._entry = entry

    async def step(self) -> int:
        """Read new events up to the end of the log. Returns their number."""
        if not self._hub.is_begun:
            await self._begin()
            return len(self._hub.buffer)
        count = 0
        while True:
            looked_at, position, known_at = self._clock.now(), self._hub.buffer.position, self._hub.known_at
            events = await self._log.read(position, self._options.page)
            was_away = known_at is None or known_at < self._retained_since()
            if was_away and (events[0].seq - 1 if events else await self._log.last_seq()) > position:
                await self._begin()  # the next events might have been trimmed before they were read
                return count
            is_end = len(events) < self._options.page
            self._hub.spread([self._entry(each) for each in events], looked_at if is_end else events[-1].at)
            count += len(events)
            if is_end:
                return count

    async def _begin(self) -> None:
        """Fill the buffer with the newest events: after a restart, all subscribers reconnect with their last seq."""
        last_seq = await self._log.last_seq()
        buffer = EventBuffer(self._options.buffer, position=await self._start())
        while True:
            looked_at = self._clock.now()
            events = await self._log.read(buffer.position, self._options.page)
            if events and not len(buffer):
                buffer.floor = events[0].seq - 1
            buffer.add([self._entry(each) for each in events])
            if len(events) < self._options.page:
                break
        buffer.forget_older_than(self._retained_since())
        if not len(buffer):
            buffer.floor = max(buffer.floor, last_seq)
        self._hub.begin(buffer, looked_at)

    async def _start(self) -> int:
        """Return a position about one buffer size before the end, after which no event can be inserted."""
        count = self._options.buffer
        while len(newest := await self._log.newest(count)) == count:
            readable = await self._log.read(newest[0].seq - 1, 1)
            if readable and readable[0].seq == newest[0].seq:
                return newest[0].seq - 1
            count *= 2
        return 0


class CatchUpReader:
    """Reads log pages for subscribers that are behind the buffer.

    It serves the subscriber that has waited longest. Subscribers that wait near that position get the same page.
    """

    def __init__(
        self,
        log: EventLog,
        hub: SubscriptionHub,
        retained_since: Callable[[], int],
        options: FeedOptions,
        entry: Callable[[Event], FeedEntry],
    ) -> None:
        self._log = log
        self._hub = hub
        self._retained_since = retained_since
        self._limit = options.page
        self._entry = entry

    async def serve_next(self) -> bool:
        """Read one page for one subscriber. Returns False if no subscriber is waiting."""
        subscription = self._hub.next_waiting()
        if subscription is None or subscription.place is None:
            return subscription is not None
        try:
            await self._serve(subscription, subscription.place)
        finally:
            self._hub.release(subscription)
        return True

    async def _serve(self, subscription: Subscription, place: FeedPosition) -> None:
        floor, position = self._hub.buffer.floor, self._hub.buffer.position
        if place.seq >= max(floor, position):  # the subscriber comes from a process that had read further
            subscription.place = place._replace(known_at=self._hub.known_at)
        # Also read the event at the position: its time is the age of the position.
        events = await self._log.read(max(place.seq - 1, 0), self._limit + 1)
        if not events and place.seq > max(position, await self._log.last_seq()):
            self._hub.set_back(subscription)
            return
        end, trimmed_to = (events[-1].seq if events else 0), 0
        if len(events) <= self._limit:  # complete up to the position of the log reader
            end, trimmed_to = max(end, min(floor, position)), floor
        memory = min(self._hub.buffer.floor, self._hub.buffer.position)
        if place.seq < memory < end:  # from here on the buffer is complete: nothing was trimmed from it
            events = [event for event in events if event.seq <= memory]
            end = trimmed_to = memory
        entries = [self._entry(event) for event in events]
        self._hub.hand_out(LogPage(place.seq, entries, end, trimmed_to, self._retained_since()), subscription)


_TOPICS = (WORK, STOP, DONE, LOCK, AGENT, RULES, INBOX, LOST)  # most wake-ups come with an event
_TRIM_MARGIN_MS = 60_000
_PATIENCE_S = 1.0  # delay after a failed read
_BEAT_S = 1.0
log = Log("ade.feed")


def available_since(clock: Clock, retention_s: float) -> Callable[[], int]:
    """Return a function that gives the moment since which no event was trimmed, based on `events.retention_s`.

    The margin covers events that are committed some time after their timestamp, and trimming that runs meanwhile.
    """
    retention_ms = round(retention_s * 1000)
    sure_ms = retention_ms - min(_TRIM_MARGIN_MS, retention_ms // 2)
    return lambda: clock.now() - sure_ms


class EventFeed:
    """Follows the event log for all subscribers of a process.

    `encode` encodes an event once for all subscribers. `run` drives everything; a test can call `step`, `catch_up`, and
    `beat` instead.
    """

    def __init__(
        self,
        events: EventLog,
        wakeups: Wakeups,
        clock: Clock,
        *,
        retained_since: Callable[[], int],
        options: FeedOptions | None = None,
        encode: Callable[[Event], bytes] = event_block,
    ) -> None:
        def entry(event: Event) -> FeedEntry:
            return FeedEntry(event, encode)

        self._options = options = options or FeedOptions()
        self._wakeups = wakeups
        self._hub = SubscriptionHub(options, clock.steady)
        self._reader = LogFollower(events, self._hub, clock, retained_since, options, entry)
        self._pages = CatchUpReader(events, self._hub, retained_since, options, entry)
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of subscribers. A server that limits them checks before it subscribes another one."""
        return len(self._hub)

    @property
    def is_begun(self) -> bool:
        """Whether the log has been read for the first time. Until then subscribers wait. For `/readyz`."""
        return self._hub.is_begun

    @property
    def position(self) -> int:
        """The seq up to which the log was read."""
        return self._hub.buffer.position

    def subscribe(self, event_filter: EventFilter = EVERYTHING, after: int | None = None) -> Subscription:
        """Subscribe to matching events with a seq above `after`; 0 is everything in the log.

        Without `after` the subscription starts now. Its first item is then a heartbeat with the current position, from
        which the next connection can resume.
        """
        return self._hub.subscribe(event_filter, after)

    async def run(self) -> None:
        """Follow the log until `close` or cancellation. In both cases every subscriber receives an end."""
        loops = (self._follow, self._beat, *[self._read_pages] * self._options.readers)
        reason = "the event feed has failed"
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._persist(loop), name="ade-feed") for loop in loops]
                await self._closed.wait()
                for task in tasks:
                    task.cancel()
        except asyncio.CancelledError:
            reason = "the event feed was stopped"
            raise
        finally:
            if not self._closed.is_set():
                self.close(reason)

    def close(self, reason: str) -> None:
        """Send every subscriber an end after its pending items. Later subscribers receive only the end."""
        self._closed.set()
        self._hub.end(reason)

    async def step(self) -> int:
        """Read new events from the log. Returns their number."""
        return await self._reader.step()

    async def catch_up(self) -> bool:
        """Read one page for a subscriber that is far behind. Returns False if there is none."""
        return await self._pages.serve_next()

    def beat(self) -> int:
        """Send heartbeats to idle subscribers. Returns their number."""
        return self._hub.beat()

    async def _persist(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Restart a loop when it fails. A store that cannot be read might recover; heartbeats continue meanwhile."""
        while True:
            try:
                await loop()
            except AdeError as error:
                log.warning("feed.waits", code=error.code, error=error.detail)
                await asyncio.sleep(_PATIENCE_S)
            except Exception:  # a stopped feed would stay unusable until the next restart
                log.exception("feed.failed")
                await asyncio.sleep(_PATIENCE_S)

    async def _follow(self) -> None:
        with ExitStack() as stack:
            for topic in _TOPICS:
                stack.callback(self._wakeups.follow(topic, self._woken.set))
            while True:
                self._woken.clear()
                await self.step()
                await asyncio.sleep(self._options.pace_s)
                await self._wait_for_hint()

    async def _wait_for_hint(self) -> None:
        try:
            async with asyncio.timeout(self._options.poll_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _read_pages(self) -> None:
        while True:
            while await self.catch_up():
                pass
            await self._hub.asked.wait()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(min(_BEAT_S, self._options.heartbeat_s / 2))
            self.beat()


_PAGE = 1_000


async def events_after(log: EventLog, seq: int, at_most: int) -> int:
    """Count the events after a seq, up to `at_most`. Seqs have gaps, so a difference of seqs is not a count."""
    count = 0
    while count < at_most and (events := await log.read(seq, min(_PAGE, at_most - count))):
        count += len(events)
        seq = events[-1].seq
    return count
