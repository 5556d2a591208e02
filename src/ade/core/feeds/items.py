"""What a subscriber is given: events in batches, gaps, heartbeats, and an end."""

from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec
from msgspec import Struct

from ade.core.events import Event
from ade.core.feeds.sse import block, comment, event_block

TASK_IS_FINAL = "the task is final"  # why a stream of lines ends for good


class Entry:
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


class Batch:
    """Events that one subscriber, or many with the same filter, gets in one go; never empty."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.entries]

    @cached_property
    def text(self) -> bytes:
        return b"".join(entry.text for entry in self.entries)

    def behind(self, seq: int) -> "Batch | None":
        """What of it comes after a place: all of it, some of it, or None."""
        if self.entries[0].seq > seq:
            return self
        rest = [entry for entry in self.entries if entry.seq > seq]
        return Batch(rest) if rest else None


class Gap(Struct, frozen=True):
    """Events with seqs above `after` and up to `until` may be missing: they are no longer in the log.

    Those that are still there follow. Whoever keeps a picture of the whole should make it anew.
    """

    after: int
    until: int


class Heartbeat(Struct, frozen=True):
    """Nothing came for a while. All that is wanted up to `seq` was given: a good place to go on from.

    None while the log could not be read for the first time.
    """

    seq: int | None


class End(Struct, frozen=True):
    """No more comes from here. Connect again, perhaps elsewhere, and go on behind the last event."""

    reason: str


Item = Batch | Gap | Heartbeat | End


def item_text(item: Item, *, retry_ms: int | None = None) -> bytes:
    """An item as blocks of an event stream. `retry_ms` goes out with an end: when to come back, best with some chance
    in it, so that not all come at once."""
    match item:
        case Batch():
            return item.text
        case Gap():
            return block(event="gap", data=msgspec.json.encode(item).decode())
        case Heartbeat():  # the id moves on, so that a quiet subscriber need not search the whole log later
            return comment("heartbeat") + block(seq=item.seq)
        case End():
            return block(event="end", data=msgspec.json.encode(item).decode(), retry_ms=retry_ms)
