"""Items of an event feed (batches, gaps, heartbeats, ends), pages of the log, and the buffer of recent events."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec import Struct

from ade.events.model import Event
from ade.events.sse import block, comment, event_block

TASK_IS_FINAL = "the task is final"  # reason for the final end of an output stream


class FeedEntry:
    """An event on its way to subscribers. It is encoded once for all of them, on first use."""

    __slots__ = ("_encode", "_text", "event", "seq")

    def __init__(self, event: Event, encode: Callable[[Event], bytes] = event_block) -> None:
        self.event = event
        self.seq = event.seq
        self._encode = encode
        self._text: bytes | None = None

    @property
    def text(self) -> bytes:
        if self._text is None:
            self._text = self._encode(self.event)
        return self._text


class EventBatch:
    """Events for one subscriber, or for many subscribers with the same filter. Never empty."""

    def __init__(self, entries: Sequence[FeedEntry]) -> None:
        self.entries = tuple(entries)

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.entries]

    @cached_property
    def text(self) -> bytes:
        return b"".join(entry.text for entry in self.entries)

    def behind(self, seq: int) -> "EventBatch | None":
        """Return the part of the batch after a seq: all of it, some of it, or None."""
        if self.entries[0].seq > seq:
            return self
        rest = [entry for entry in self.entries if entry.seq > seq]
        return EventBatch(rest) if rest else None


class Gap(Struct, frozen=True):
    """Events with a seq above `after` and up to `until` might be missing, because they are no longer in the log.

    Events that are still in the log follow. A subscriber that keeps derived state should rebuild it.
    """

    after: int
    until: int


class FeedHeartbeat(Struct, frozen=True):
    """No event arrived for a while. All matching events up to `seq` were delivered, so it is a safe resume position.

    `seq` is None until the log has been read for the first time.
    """

    seq: int | None


class FeedEnd(Struct, frozen=True):
    """The stream ends. Reconnect, possibly to another server, and resume after the last event."""

    reason: str


Item = EventBatch | Gap | FeedHeartbeat | FeedEnd


def item_text(item: Item, *, retry_ms: int | None = None) -> bytes:
    """Encode an item as SSE blocks. `retry_ms` is sent with an end: the reconnect delay. Add jitter to it, so that
    clients do not all reconnect at the same time.
    """
    match item:
        case EventBatch():
            return item.text
        case Gap():
            return block(event="gap", data=msgspec.json.encode(item).decode())
        case FeedHeartbeat():  # the ID advances, so that an idle subscriber does not rescan the whole log on reconnect
            return comment("heartbeat") + block(seq=item.seq)
        case FeedEnd():
            return block(event="end", data=msgspec.json.encode(item).decode(), retry_ms=retry_ms)


# Gap detection. Events past their retention can be trimmed for some tasks and not for others. Seqs have gaps of their
# own, so a missing seq proves nothing. Time does: nothing was trimmed after an event that is within the retention, and
# there can be no event between two consecutive seqs.


_seq = attrgetter("seq")


class FeedPosition(NamedTuple):
    """The position up to which a subscriber has received everything."""

    seq: int
    known_at: int | None = None  # events after the position happened at this moment or later; None: unknown


class LogPage(NamedTuple):
    """A page of the log: all events still in it after `after`, up to `end`. It can start with the event at `after`."""

    after: int
    entries: Sequence[FeedEntry]
    end: int
    trimmed_to: int  # start of the events known from elsewhere; below it, only `entries` are left
    retained_since: int  # when the page was read, no event since this moment could have been trimmed


class FeedPortion(NamedTuple):
    """The part of a page that one subscriber receives."""

    gap: Gap | None
    entries: Sequence[FeedEntry]
    place: FeedPosition


def portion(page: LogPage, place: FeedPosition) -> FeedPortion:
    """Return the part of a page after a position inside the page."""
    start = bisect_right(page.entries, place.seq, key=_seq)
    rest = page.entries[start:]
    known_at = place.known_at
    if start:
        earlier = page.entries[start - 1].event.at
        known_at = earlier if known_at is None else max(known_at, earlier)
    until = _last_hole(page, place.seq, known_at, rest)
    gap = None if until is None else Gap(place.seq, until)
    if rest:
        known_at = rest[-1].event.at
    return FeedPortion(gap, rest, FeedPosition(max(place.seq, page.end), known_at))


def _last_hole(page: LogPage, seq: int, known_at: int | None, entries: Sequence[FeedEntry]) -> int | None:
    """Return the end of the last range from which events might have been trimmed."""
    until = None
    for entry in entries:
        if entry.seq > seq + 1 and _may_be_trimmed(page, known_at):
            until = entry.seq - 1
        seq, known_at = entry.seq, entry.event.at
    if page.trimmed_to > seq and _may_be_trimmed(page, known_at):
        until = page.trimmed_to
    return until


def _may_be_trimmed(page: LogPage, known_at: int | None) -> bool:
    return known_at is None or known_at < page.retained_since


class EventBuffer:
    """The newest events, shared by all subscribers of a process.

    Holds at least `size` events, and at most twice as many plus one batch. It is complete from `floor` to `position`;
    `position` is how far the log was read.
    """

    def __init__(self, size: int, floor: int = 0, position: int = 0) -> None:
        self.floor = floor
        self.position = position
        self._size = size
        self._entries: list[FeedEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: Sequence[FeedEntry]) -> None:
        """Append the next events of the log, in order."""
        if not entries:
            return
        self._entries += entries
        self.position = entries[-1].seq
        if len(self._entries) > 2 * self._size:
            self._forget(len(self._entries) - self._size)

    def forget_older_than(self, moment: int) -> None:
        """Drop everything up to the last event before a moment: events in between might have been trimmed."""
        old = [index for index, entry in enumerate(self._entries) if entry.event.at < moment]
        if old:
            self._forget(old[-1] + 1)
        if old and self._entries:
            self.floor = self._entries[0].seq - 1

    def holds(self, seq: int) -> bool:
        """Return whether the buffer contains everything after a seq, up to its position."""
        return self.floor <= seq <= self.position

    def behind(self, seq: int, limit: int) -> Sequence[FeedEntry]:
        """Return the next events after a seq that the buffer holds."""
        start = bisect_right(self._entries, seq, key=_seq)
        return self._entries[start : start + limit]

    def _forget(self, count: int) -> None:
        self.floor = max(self.floor, self._entries[count - 1].seq)
        del self._entries[:count]
