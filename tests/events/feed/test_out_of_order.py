"""Where seqs have gaps and are not written in their order, as in a cluster: still nothing is lost or doubled."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ade.events.feed import _TOPICS
from ade.events.feed_items import FeedHeartbeat, Gap, Item
from ade.events.hub import FeedOptions
from ade.stores.wakeups import TOPICS
from ade.testing import TestClock
from tests.conformance.backends import BACKENDS
from tests.depth import examples
from tests.domain import Stores
from tests.events.feed.manual_feed import KEPT_S, House, seqs
from tests.events.feed.partitions import PartitionedLog


@pytest.fixture
def log(clock: TestClock) -> PartitionedLog:
    return PartitionedLog(clock)


@pytest.fixture
def house(stores: Stores, clock: TestClock, log: PartitionedLog) -> House:
    return House(replace(stores, events=log), clock)


async def test_a_slow_partition_is_waited_for(house: House, log: PartitionedLog) -> None:
    log.write(10)
    await house.feed.step()  # what is newest may not be told yet
    subscription = house.subscribe()
    assert await house.read(subscription) == [FeedHeartbeat(0)]
    log.write(8)
    log.promise(9)
    await house.feed.step()
    assert await house.read_seqs(subscription) == [8]
    log.promise(10)
    await house.feed.step()
    assert await house.read_seqs(subscription) == [10]


async def test_newest_events_that_are_not_told_yet_are_no_place_to_begin(house: House, log: PartitionedLog) -> None:
    log.promise(5)
    for seq in (10, 11, 12, 13):  # as many as memory holds
        log.write(seq)
    await house.feed.step()
    subscription = house.subscribe()
    log.write(8)
    log.promise(20)
    await house.feed.step()
    assert await house.read_seqs(subscription) == [8, 10, 11, 12, 13]


async def test_who_was_ahead_is_not_set_back(house: House, log: PartitionedLog) -> None:
    log.write(10)
    log.promise(9)
    await house.feed.step()
    subscription = house.subscribe(after=10)  # another process knew of the promise already
    assert await house.read(subscription) == []
    log.write(14)
    log.promise(20)
    await house.feed.step()
    assert await house.read_seqs(subscription) == [14]


async def test_gaps_of_the_seqs_are_no_gaps_of_the_feed(house: House, log: PartitionedLog) -> None:
    for seq in range(100, 200, 7):
        log.write(seq)
    log.promise(200)
    await house.feed.step()
    items = await house.read(house.subscribe(after=107))
    assert seqs(items) == list(range(114, 200, 7))
    assert not [item for item in items if isinstance(item, Gap)]


async def test_a_place_older_than_events_are_kept_may_have_lost_some(
    house: House, log: PartitionedLog, clock: TestClock
) -> None:
    log.write(100)
    clock.advance(KEPT_S + 1)
    log.write(107)
    log.promise(200)
    await house.feed.step()
    gap, *rest = await house.read(house.subscribe(after=100))
    assert gap == Gap(100, 106)
    assert seqs(rest) == [107]


def test_the_feed_listens_to_every_topic() -> None:
    assert set(_TOPICS) == set(TOPICS)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.integers(1, 9), min_size=1, max_size=6)),
        st.tuples(st.just("promise"), st.integers(1, 9)),
        st.tuples(st.just("step"), st.none()),
        st.tuples(st.just("read"), st.tuples(st.integers(0, 1), st.integers(1, 4))),
        st.tuples(st.just("reconnect"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("age"), st.sampled_from([KEPT_S / 2, KEPT_S + 1])),
    ),
    min_size=5,
    max_size=40,
)


class Play:
    """Two clients, one from the first event and one from now on, on a log that fills up in odd ways."""

    def __init__(self, house: House, log: PartitionedLog) -> None:
        self.house = house
        self.log = log
        self.subscriptions = [house.subscribe(after=1), house.subscribe()]
        self.taken: list[list[Item]] = [[], []]
        self.lasts = [1, 1]

    async def write(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            if self.log.promised + offset not in self.log.written:
                self.log.write(self.log.promised + offset)

    async def promise(self, count: int) -> None:
        self.log.promise(self.log.promised + count)

    async def step(self, _: None) -> None:
        await self.house.feed.step()

    async def read(self, how: tuple[int, int]) -> None:
        which, most = how
        for item in await self.house.read(self.subscriptions[which], most):
            self.taken[which].append(item)
            for seq in seqs([item]):
                assert seq > self.lasts[which]
                self.lasts[which] = seq

    async def reconnect(self, which: int) -> None:
        self.subscriptions[which].close()
        self.subscriptions[which] = self.house.subscribe(after=self.lasts[which])

    async def restart(self, _: None) -> None:
        self.house.feed = self.house.another_feed()
        for which in range(2):
            await self.reconnect(which)

    async def age(self, seconds: float) -> None:
        self.log.promise(await self.log.last_seq())  # no partition is so late
        self.house.clock.advance(seconds)
        await self.house.trim()

    async def finish(self) -> set[int]:
        untold: set[int] = set()
        self.log.promise(await self.log.last_seq())
        await self.house.feed.step()
        for which in range(2):
            await self.read((which, 1_000))
            gaps = [item for item in self.taken[which] if isinstance(item, Gap)]
            missed = self.log.written.keys() - {1} - set(seqs(self.taken[which]))
            assert all(any(gap.after < seq <= gap.until for gap in gaps) for seq in missed)
            untold |= missed - self.log.trimmed
        return untold


async def play(folder: Path, script: Sequence[tuple[str, object]], options: FeedOptions) -> set[int]:
    """The events that no reader was told of, and that were not trimmed."""
    clock = TestClock()
    stores = await BACKENDS["memory"].open(folder, clock)
    try:
        log = PartitionedLog(clock)
        log.write(1)
        log.promise(1)
        house = House(replace(stores, events=log), clock, options)
        await house.feed.step()
        a_play = Play(house, log)
        for name, what in script:
            await getattr(a_play, name)(what)
        return await a_play.finish()
    finally:
        await stores.close()


@settings(max_examples=examples(20))
@given(script=steps, buffer=st.integers(1, 5), pending=st.integers(1, 4), page=st.integers(1, 4))
def test_nothing_is_lost_or_doubled_on_partitions(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[str, object]], buffer: int, pending: int, page: int
) -> None:
    options = FeedOptions(buffer=buffer, pending=pending, page=page)

    assert asyncio.run(play(tmp_path_factory.mktemp("feed"), script, options)) == set()
