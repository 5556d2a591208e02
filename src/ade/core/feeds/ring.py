"""The newest events, shared by all subscribers of a process."""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from ade.core.feeds.items import Entry

_seq = attrgetter("seq")


class Ring:
    """At least the newest `size` events, and never more than twice as many and one portion.

    Behind `floor` nothing is missing from it, up to `position`: how far the log was read.
    """

    def __init__(self, size: int, floor: int = 0, position: int = 0) -> None:
        self.floor = floor
        self.position = position
        self._size = size
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: Sequence[Entry]) -> None:
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

    def behind(self, seq: int, limit: int) -> Sequence[Entry]:
        """The next events behind a place that it holds."""
        start = bisect_right(self._entries, seq, key=_seq)
        return self._entries[start : start + limit]

    def _forget(self, count: int) -> None:
        self.floor = max(self.floor, self._entries[count - 1].seq)
        del self._entries[:count]
