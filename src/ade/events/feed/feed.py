"""The feed as front ends see it: subscribe, run, close."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from ade.core.errors import AdeError
from ade.core.events import Event
from ade.core.feeds.filters import EVERYTHING, EventFilter
from ade.core.feeds.items import Entry
from ade.core.feeds.sse import event_block
from ade.events.feed.catching_up import CatchUp
from ade.events.feed.following import Reader
from ade.events.feed.hub import Hub
from ade.events.feed.options import FeedOptions
from ade.events.feed.subscription import Subscription
from ade.logs import Log
from ade.ports import AGENT, DONE, INBOX, LOCK, RULES, STOP, WORK, Clock, EventLog, Hints

_TOPICS = (WORK, STOP, DONE, LOCK, AGENT, RULES, INBOX)  # whatever rings has usually made an event
_TRIM_MARGIN_MS = 60_000
_PATIENCE_S = 1.0  # after the store could not be read
_BEAT_S = 1.0
log = Log("ade.feed")


def kept_since(clock: Clock, retention_s: float) -> Callable[[], int]:
    """Since which moment surely no event was trimmed, with `events.retention_s` as the settings have it.

    The margin is for events that are committed some time after the moment they tell, and for who trims meanwhile.
    """
    kept_ms = round(retention_s * 1000)
    sure_ms = kept_ms - min(_TRIM_MARGIN_MS, kept_ms // 2)
    return lambda: clock.now() - sure_ms


class EventFeed:
    """Follows the event log for all subscribers of a process.

    `encode` makes the text of an event, once for all subscribers. With `step`, `catch_up` and `beat` a test does by
    hand what `run` does by itself.
    """

    def __init__(
        self,
        events: EventLog,
        hints: Hints,
        clock: Clock,
        *,
        kept_since: Callable[[], int],
        options: FeedOptions | None = None,
        encode: Callable[[Event], bytes] = event_block,
    ) -> None:
        def entry(event: Event) -> Entry:
            return Entry(event, encode)

        self._options = options = options or FeedOptions()
        self._hints = hints
        self._hub = Hub(options, clock.steady)
        self._reader = Reader(events, self._hub, clock, kept_since, options, entry)
        self._pages = CatchUp(events, self._hub, kept_since, options, entry)
        self._rung = asyncio.Event()
        self._closed = asyncio.Event()

    def __len__(self) -> int:
        """How many subscribers there are; a server that wants a limit asks before it subscribes one more."""
        return len(self._hub)

    @property
    def is_begun(self) -> bool:
        """Whether the log was read for the first time; until then subscribers wait. For `/readyz`."""
        return self._hub.is_begun

    @property
    def position(self) -> int:
        """How far the log was read."""
        return self._hub.ring.position

    def subscribe(self, wanted: EventFilter = EVERYTHING, after: int | None = None) -> Subscription:
        """Everything wanted with a seq above `after`; 0 is all that is kept.

        Without it, from now on: then the first item is a heartbeat that tells where that is, for the next connection.
        """
        return self._hub.subscribe(wanted, after)

    async def run(self) -> None:
        """Follow the log until `close` or until cancelled; in any case every subscriber gets an end."""
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
        """Give every subscriber an end, behind what waits for it. Who subscribes later gets nothing else."""
        self._closed.set()
        self._hub.end(reason)

    async def step(self) -> int:
        """Read what is new in the log; answers how many events."""
        return await self._reader.step()

    async def catch_up(self) -> bool:
        """Read one page for a subscriber that is far behind; False when there is none."""
        return await self._pages.serve_next()

    def beat(self) -> int:
        """Heartbeats for those to whom nothing came for long; answers how many."""
        return self._hub.beat()

    async def _persist(self, loop: Callable[[], Awaitable[None]]) -> None:
        """A store that cannot be read now can be later; meanwhile there are heartbeats."""
        while True:
            try:
                await loop()
            except AdeError as error:
                log.warning("feed.waits", code=error.code, error=error.detail)
                await asyncio.sleep(_PATIENCE_S)
            except Exception:  # whatever it is, a feed that has ended is of no use to anybody until the next start
                log.exception("feed.failed")
                await asyncio.sleep(_PATIENCE_S)

    async def _follow(self) -> None:
        with ExitStack() as stack:
            for topic in _TOPICS:
                stack.callback(self._hints.follow(topic, self._rung.set))
            while True:
                self._rung.clear()
                await self.step()
                await asyncio.sleep(self._options.pace_s)
                await self._wait_for_hint()

    async def _wait_for_hint(self) -> None:
        try:
            async with asyncio.timeout(self._options.poll_s):
                await self._rung.wait()
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
