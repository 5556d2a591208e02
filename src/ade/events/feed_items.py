"""What a subscriber is given: events in batches, gaps, heartbeats, and an end."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec import Struct

from ade.events.model import Event
from ade.events.sse import block, comment, event_block

TASK_IS_FINAL = "the task is final"  # why a stream of lines ends for good


class FeedEntry:
    """An event on its way to subscribers. Its text is made once for all of them, when the first one asks."""

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
    """Events that one subscriber, or many with the same filter, gets in one go; never empty."""

    def __init__(self, entries: Sequence[FeedEntry]) -> None:
        self.entries = tuple(entries)

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.entries]

    @cached_property
    def text(self) -> bytes:
        return b"".join(entry.text for entry in self.entries)

    def behind(self, seq: int) -> "EventBatch | None":
        """What of it comes after a place: all of it, some of it, or None."""
        if self.entries[0].seq > seq:
            return self
        rest = [entry for entry in self.entries if entry.seq > seq]
        return EventBatch(rest) if rest else None


class Gap(Struct, frozen=True):
    """Events with seqs above `after` and up to `until` may be missing: they are no longer in the log.

    Those that are still there follow. Whoever keeps a picture of the whole should make it anew.
    """

    after: int
    until: int


class FeedHeartbeat(Struct, frozen=True):
    """Nothing came for a while. All that is wanted up to `seq` was given: a good place to go on from.

    None while the log could not be read for the first time.
    """

    seq: int | None


class FeedEnd(Struct, frozen=True):
    """No more comes from here. Connect again, perhaps elsewhere, and go on behind the last event."""

    reason: str


Item = EventBatch | Gap | FeedHeartbeat | FeedEnd


def item_text(item: Item, *, retry_ms: int | None = None) -> bytes:
    """An item as blocks of an event stream. `retry_ms` goes out with an end: when to come back, best with some chance
    in it, so that not all come at once."""
    match item:
        case EventBatch():
            return item.text
        case Gap():
            return block(event="gap", data=msgspec.json.encode(item).decode())
        case FeedHeartbeat():  # the id moves on, so that a quiet subscriber need not search the whole log later
            return comment("heartbeat") + block(seq=item.seq)
        case FeedEnd():
            return block(event="end", data=msgspec.json.encode(item).decode(), retry_ms=retry_ms)


# What a page of the log holds for a subscriber, and whether something it wanted is missing.
#
# Events that are older than the log keeps them may have been trimmed, of some tasks and not of others; seqs have gaps
# of their own, so a seq that is not there tells nothing. What tells is time: behind a young event nothing was
# trimmed, and between neighbouring seqs there is no room for anything.


_seq = attrgetter("seq")


class FeedPosition(NamedTuple):
    """Up to where a subscriber has everything."""

    seq: int
    known_at: int | None = None  # what lies behind the place happened at this moment or later; None: not known


class LogPage(NamedTuple):
    """Some of the log: everything it still had behind `after`, up to `end`. It may begin with the event at `after`."""

    after: int
    entries: Sequence[FeedEntry]
    end: int
    trimmed_to: int  # where the next events are that are known otherwise; below, none but these are left
    kept_since: int  # nothing that happened since this moment can have been trimmed when the page was read


class FeedPortion(NamedTuple):
    """What of a page is for one subscriber."""

    gap: Gap | None
    entries: Sequence[FeedEntry]
    place: FeedPosition


def portion(page: LogPage, place: FeedPosition) -> FeedPortion:
    """The part of a page behind a place that lies in it."""
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
    """The end of the last stretch from which events may have been trimmed."""
    until = None
    for entry in entries:
        if entry.seq > seq + 1 and _may_be_trimmed(page, known_at):
            until = entry.seq - 1
        seq, known_at = entry.seq, entry.event.at
    if page.trimmed_to > seq and _may_be_trimmed(page, known_at):
        until = page.trimmed_to
    return until


def _may_be_trimmed(page: LogPage, known_at: int | None) -> bool:
    return known_at is None or known_at < page.kept_since


# The newest events, shared by all subscribers of a process.


_seq_ring = attrgetter("seq")


class EventBuffer:
    """At least the newest `size` events, and never more than twice as many and one portion.

    Behind `floor` nothing is missing from it, up to `position`: how far the log was read.
    """

    def __init__(self, size: int, floor: int = 0, position: int = 0) -> None:
        self.floor = floor
        self.position = position
        self._size = size
        self._entries: list[FeedEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: Sequence[FeedEntry]) -> None:
        """The next events of the log, in order."""
        if not entries:
            return
        self._entries += entries
        self.position = entries[-1].seq
        if len(self._entries) > 2 * self._size:
            self._forget(len(self._entries) - self._size)

    def forget_older_than(self, moment: int) -> None:
        """Keep only what comes after the last event from before a moment; between them others may have been."""
        old = [index for index, entry in enumerate(self._entries) if entry.event.at < moment]
        if old:
            self._forget(old[-1] + 1)
        if old and self._entries:
            self.floor = self._entries[0].seq - 1

    def holds(self, seq: int) -> bool:
        """Whether everything behind this place, up to the position, is in here."""
        return self.floor <= seq <= self.position

    def behind(self, seq: int, limit: int) -> Sequence[FeedEntry]:
        """The next events behind a place that it holds."""
        start = bisect_right(self._entries, seq, key=_seq_ring)
        return self._entries[start : start + limit]

    def _forget(self, count: int) -> None:
        self.floor = max(self.floor, self._entries[count - 1].seq)
        del self._entries[:count]
