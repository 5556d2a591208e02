"""What a page of the log holds for a subscriber, and whether something it wanted is missing.

Events that are older than the log keeps them may have been trimmed, of some tasks and not of others; seqs have gaps of
their own, so a seq that is not there tells nothing. What tells is time: behind a young event nothing was trimmed, and
between neighbouring seqs there is no room for anything.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from ade.core.feeds.items import Entry, Gap

_seq = attrgetter("seq")


class Place(NamedTuple):
    """Up to where a subscriber has everything."""

    seq: int
    known_at: int | None = None  # what lies behind the place happened at this moment or later; None: not known


class Page(NamedTuple):
    """Some of the log: everything it still had behind `after`, up to `end`. It may begin with the event at `after`."""

    after: int
    entries: Sequence[Entry]
    end: int
    trimmed_to: int  # where the next events are that are known otherwise; below, none but these are left
    kept_since: int  # nothing that happened since this moment can have been trimmed when the page was read


class Portion(NamedTuple):
    """What of a page is for one subscriber."""

    gap: Gap | None
    entries: Sequence[Entry]
    place: Place


def portion(page: Page, place: Place) -> Portion:
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
    return Portion(gap, rest, Place(max(place.seq, page.end), known_at))


def _last_hole(page: Page, seq: int, known_at: int | None, entries: Sequence[Entry]) -> int | None:
    """The end of the last stretch from which events may have been trimmed."""
    until = None
    for entry in entries:
        if entry.seq > seq + 1 and _may_be_trimmed(page, known_at):
            until = entry.seq - 1
        seq, known_at = entry.seq, entry.event.at
    if page.trimmed_to > seq and _may_be_trimmed(page, known_at):
        until = page.trimmed_to
    return until


def _may_be_trimmed(page: Page, known_at: int | None) -> bool:
    return known_at is None or known_at < page.kept_since
