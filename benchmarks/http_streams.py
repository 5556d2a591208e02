"""What came over streams of events, and whether all of it did, once and in order."""

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

BLOCK_ENDS = b"\n\n"
_DATA = b"\ndata: "
_EVENT = re.compile(rb"\nid: (\d+)\nevent: ")
_LAST = re.compile(rb"id: (\d+)")
_MOMENT = re.compile(rb'\ndata: \{[^\n]*?"at":"([^"]*)"')


@dataclass(slots=True)
class Part:
    """Events that came in one go."""

    first: int
    last: int
    count: int


def part_of(text: bytes | bytearray, end: int) -> Part | None:
    """The events in whole blocks, of which the last ends at `end`; heartbeats and the like are none."""
    first = _EVENT.search(text, 0, end)
    if first is None:
        return None
    named = text.rfind(b"\nevent: ", 0, end)
    last = _LAST.match(text, text.rfind(b"id: ", 0, named))
    assert last is not None, "an event without an id"
    return Part(int(first[1]), int(last[1]), text.count(_DATA, 0, end))


def moments(text: bytes | bytearray, end: int) -> list[float]:
    """When each of the events happened, in seconds since the epoch, as it says itself."""
    return [datetime.fromisoformat(found.decode()).timestamp() for found in _MOMENT.findall(text, 0, end)]


@dataclass(slots=True)
class Received:
    """All that one subscriber was given: the parts, flat, so that a thousand subscribers keep little."""

    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    reached: int = 0

    def add(self, part: Part) -> None:
        self.numbers.extend((part.first, part.last, part.count))
        self.reached = part.last


@dataclass(frozen=True, slots=True)
class Account:
    received: int
    lost: int
    duplicates: int


def account(numbers: Sequence[int], places: Mapping[int, int], until: int) -> Account:
    """Compares the parts of one subscriber with the log: `places` says the how-manieth event of the log a seq is.

    Exact but for a part in which an event came twice and another one not at all.
    """
    received = lost = duplicates = 0
    before = -1  # the place of the last event so far
    for at in range(0, len(numbers), 3):
        first, last, count = places[numbers[at]], places[numbers[at + 1]], numbers[at + 2]
        for missing in (first - before - 1, last - first + 1 - count):
            lost += max(0, missing)
            duplicates += max(0, -missing)
        received += count
        before = last
    return Account(received, lost + max(0, places[until] - before), duplicates)


def total(accounts: Iterable[Account]) -> Account:
    every = list(accounts)
    return Account(
        sum(each.received for each in every), sum(each.lost for each in every), sum(each.duplicates for each in every)
    )
