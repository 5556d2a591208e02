"""The one reader of a process: follows the log to its end and tells the hub."""

from collections.abc import Callable

from ade.core.events import Event
from ade.core.feeds.items import Entry
from ade.core.feeds.ring import Ring
from ade.events.feed.hub import Hub
from ade.events.feed.options import FeedOptions
from ade.ports import Clock, EventLog


class Reader:
    """Follows the log. A store gives events only when none can come in before them, so the last seq is a safe place.

    That holds for `read` alone: `newest` and `last_seq` may run ahead, and only tell where to begin.
    """

    def __init__(
        self,
        log: EventLog,
        hub: Hub,
        clock: Clock,
        kept_since: Callable[[], int],
        options: FeedOptions,
        entry: Callable[[Event], Entry],
    ) -> None:
        self._log = log
        self._hub = hub
        self._clock = clock
        self._kept_since = kept_since
        self._options = options
        self._entry = entry

    async def step(self) -> int:
        """Read what is new, up to the end of the log; answers how many events that was."""
        if not self._hub.is_begun:
            await self._begin()
            return len(self._hub.ring)
        count = 0
        while True:
            looked_at, position, known_at = self._clock.now(), self._hub.ring.position, self._hub.known_at
            events = await self._log.read(position, self._options.page)
            was_away = known_at is None or known_at < self._kept_since()
            if was_away and (events[0].seq - 1 if events else await self._log.last_seq()) > position:
                await self._begin()  # what came next may have been trimmed before it was seen
                return count
            is_end = len(events) < self._options.page
            self._hub.spread([self._entry(each) for each in events], looked_at if is_end else events[-1].at)
            count += len(events)
            if is_end:
                return count

    async def _begin(self) -> None:
        """Fill the memory with the newest events: after a restart, all come back at once with what they saw last."""
        last_seq = await self._log.last_seq()
        ring = Ring(self._options.ring, position=await self._start())
        while True:
            looked_at = self._clock.now()
            events = await self._log.read(ring.position, self._options.page)
            if events and not len(ring):
                ring.floor = events[0].seq - 1
            ring.add([self._entry(each) for each in events])
            if len(events) < self._options.page:
                break
        ring.forget_older_than(self._kept_since())
        if not len(ring):
            ring.floor = max(ring.floor, last_seq)
        self._hub.begin(ring, looked_at)

    async def _start(self) -> int:
        """A place about as many events before the end as memory holds, behind which none can come in any more."""
        count = self._options.ring
        while len(newest := await self._log.newest(count)) == count:
            readable = await self._log.read(newest[0].seq - 1, 1)
            if readable and readable[0].seq == newest[0].seq:
                return newest[0].seq - 1
            count *= 2
        return 0
