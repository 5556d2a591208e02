"""What is kept in memory, and how a page of the log tells what is missing."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from ade.events.feed_items import EventBatch, EventBuffer, FeedEntry, FeedPosition, Gap, LogPage, portion
from tests.depth import examples
from tests.domain import Event


def entry(seq: int, at: int = 0) -> FeedEntry:
    return FeedEntry(Event(seq=seq, type="alert", at=at))


def seqs(entries: Sequence[FeedEntry]) -> list[int]:
    return [each.seq for each in entries]


def page(*entries: FeedEntry, after: int, end: int = 0, trimmed_to: int = 0, retained_since: int = 100) -> LogPage:
    return LogPage(after, entries, end or (entries[-1].seq if entries else after), trimmed_to, retained_since)


@settings(max_examples=examples(40))
@given(st.integers(1, 5), st.lists(st.lists(st.integers(1, 3), max_size=4), max_size=8), st.integers(0, 60))
def test_a_ring_holds_the_newest_and_knows_what_it_lost(size: int, portions: list[list[int]], place: int) -> None:
    buffer, everything, last = EventBuffer(size), [0] * 0, 0
    for steps in portions:
        added = []
        for step in steps:
            last += step
            added.append(last)
        buffer.add([entry(seq) for seq in added])
        everything += added
    assert buffer.position == last
    assert len(buffer) >= min(size, len(everything))
    assert len(buffer) <= 2 * size + 4
    if buffer.holds(place):
        assert seqs(buffer.behind(place, 1_000)) == [seq for seq in everything if seq > place]
    else:
        assert place > last or place < everything[-len(buffer) - 1]


def test_a_ring_can_forget_what_is_old() -> None:
    buffer = EventBuffer(10)
    buffer.add([entry(1, at=5), entry(4, at=20), entry(6, at=9), entry(9, at=30)])
    buffer.forget_older_than(10)
    assert (buffer.floor, buffer.position, seqs(buffer.behind(6, 10))) == (8, 9, [9])


def test_behind_a_young_event_nothing_is_missing() -> None:
    part = portion(page(entry(5, at=100), entry(9, at=101), after=5), FeedPosition(5))
    assert (part.gap, seqs(part.entries), part.place) == (None, [9], FeedPosition(9, 101))


def test_behind_an_old_event_something_may_be_missing() -> None:
    part = portion(page(entry(5, at=99), entry(9, at=101), after=5), FeedPosition(5))
    assert part.gap == Gap(5, 8)


def test_behind_a_place_that_is_gone_something_may_be_missing() -> None:
    assert portion(page(entry(9, at=101), after=5), FeedPosition(5)).gap == Gap(5, 8)


def test_between_neighbours_nothing_is_missing_however_old_they_are() -> None:
    assert portion(page(entry(6, at=1), entry(7, at=2), after=5), FeedPosition(5)).gap is None


def test_the_gap_ends_before_the_last_event_that_may_have_lost_its_neighbour() -> None:
    old_and_young = (entry(6, at=1), entry(8, at=2), entry(9, at=150), entry(20, at=151))
    assert portion(page(*old_and_young, after=5), FeedPosition(5)).gap == Gap(5, 7)


def test_what_is_known_of_a_place_saves_it_from_a_gap() -> None:
    assert portion(page(entry(9, at=101), after=5), FeedPosition(5, 100)).gap is None


def test_an_empty_end_of_the_log_tells_of_what_was_trimmed() -> None:
    part = portion(page(after=5, end=30, trimmed_to=30), FeedPosition(5))
    assert (part.gap, part.place) == (Gap(5, 30), FeedPosition(30, None))


def test_a_page_helps_a_subscriber_that_stands_in_the_middle_of_it() -> None:
    shared = page(entry(5, at=99), entry(9, at=101), entry(12, at=102), after=5)
    part = portion(shared, FeedPosition(10))
    assert (part.gap, seqs(part.entries), part.place) == (None, [12], FeedPosition(12, 102))


def test_a_batch_leaves_out_what_somebody_has() -> None:
    batch = EventBatch([entry(3), entry(5)])
    assert batch.behind(2) is batch
    rest = batch.behind(3)
    assert rest is not None
    assert [event.seq for event in rest.events] == [5]
    assert batch.behind(5) is None
