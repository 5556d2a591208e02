"""Whatever happens in which order: each subscriber gets every event it wants, once, in order, or is told of a gap."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ade.events.feed_items import FeedHeartbeat, Gap, Item
from ade.events.filters import compile_filter
from ade.events.hub import FeedOptions, Subscription
from ade.testing import TestClock
from tests.conformance.backends import BACKENDS
from tests.depth import examples
from tests.domain import Event
from tests.events.feed.manual_feed import KEPT_S, House, seqs

KINDS = ("task.created", "task.failed", "lock.acquired")
WANTED = ((), ("task.*",), ("lock.acquired",))
STARTS = (None, 1, 0)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("happen"), st.lists(st.sampled_from(KINDS), min_size=1, max_size=6)),
        st.tuples(st.just("step"), st.integers(0, 1)),
        st.tuples(st.just("read"), st.tuples(st.integers(0, 2), st.integers(1, 5))),
        st.tuples(st.just("reconnect"), st.tuples(st.integers(0, 2), st.integers(0, 1))),
        st.tuples(st.just("restart"), st.integers(0, 1)),
        st.tuples(st.just("age"), st.sampled_from([KEPT_S / 2, KEPT_S + 1])),
        st.tuples(st.just("beat"), st.integers(0, 1)),
    ),
    min_size=5,
    max_size=40,
)


class Reader:
    """A client: what it was given over all its connections, and where it would go on."""

    def __init__(self, house: House, types: Sequence[str], start: int | None) -> None:
        self.types = types
        self.start = start
        self.last: int | None = start
        self.items: list[Item] = []
        self.feed = house.feed
        self.subscription: Subscription = house.subscribe(*types, after=start)

    def take(self, items: Sequence[Item]) -> None:
        for item in items:
            self.items.append(item)
            for seq in seqs([item]):
                assert seq > (self.last or 0), "an event came twice, or too late"
                self.last = seq
            if isinstance(item, FeedHeartbeat) and item.seq is not None:
                assert item.seq >= (self.last or 0)
                self.last = item.seq

    def reconnect(self, house: House) -> None:
        self.subscription.close()
        self.feed = house.feed
        self.subscription = house.subscribe(*self.types, after=self.last)

    def check(self, everything: Sequence[Event], trimmed: set[int]) -> None:
        given = seqs(self.items)
        gaps = [item for item in self.items if isinstance(item, Gap)]
        matches = compile_filter(self.subscription.event_filter)
        wanted = {event.seq for event in everything if event.seq > (self.start or 0) and matches(event)}
        assert set(given) <= wanted
        missed = wanted - set(given)
        assert missed <= trimmed
        if self.start != 0:
            assert all(any(gap.after < seq <= gap.until for gap in gaps) for seq in missed)
        for gap in gaps:  # no false alarm: on these stores, only what was trimmed leaves a hole
            assert any(gap.after < seq <= gap.until for seq in trimmed)


class Play:
    """A store, feeds of two processes and three clients, moved by the steps that hypothesis thinks of."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.feeds = [house.feed, house.another_feed()]
        self.everything: list[Event] = []
        self.readers = [Reader(house, types, start) for types, start in zip(WANTED, STARTS, strict=True)]

    async def happen(self, kinds: Sequence[str]) -> None:
        await self.house.happen(*kinds)
        last = self.everything[-1].seq if self.everything else 0
        self.everything += await self.house.stores.events.read(last, 100)

    async def step(self, which: int) -> None:
        await self.feeds[which].step()

    async def read(self, how: tuple[int, int]) -> None:
        which, most = how
        reader = self.readers[which]
        self.house.feed = reader.feed
        reader.take(await self.house.read(reader.subscription, most))

    async def reconnect(self, how: tuple[int, int]) -> None:
        which, process = how
        self.house.feed = self.feeds[process]
        self.readers[which].reconnect(self.house)

    async def restart(self, which: int) -> None:
        old, self.feeds[which] = self.feeds[which], self.house.another_feed()
        for number, reader in enumerate(self.readers):
            if reader.feed is old:
                await self.reconnect((number, which))

    async def age(self, seconds: float) -> None:
        self.house.clock.advance(seconds)
        await self.house.trim()

    async def beat(self, which: int) -> None:
        self.feeds[which].beat()

    async def finish(self) -> None:
        for feed in self.feeds:
            await feed.step()
        for which in range(len(self.readers)):
            await self.read((which, 1_000))
        kept = {event.seq for event in await self.house.stores.events.read(0, 10_000)}
        trimmed = {event.seq for event in self.everything} - kept
        for reader in self.readers:
            reader.check(self.everything, trimmed)


async def play(backend: str, folder: Path, script: Sequence[tuple[str, object]], options: FeedOptions) -> int:
    """How many events there were; each reader has been looked at."""
    clock = TestClock()
    stores = await BACKENDS[backend].open(folder, clock)
    try:
        house = House(stores, clock, options)
        await house.happen("task.created")
        await house.feed.step()
        a_play = Play(house)
        a_play.everything = await stores.events.read(0, 10)
        fresh = a_play.readers[0]
        fresh.take(await house.read(fresh.subscription))  # where "now" is
        fresh.start = fresh.last
        for name, what in script:
            act: Callable[[object], Awaitable[None]] = getattr(a_play, name)
            await act(what)
        await a_play.finish()
        return len(a_play.everything)
    finally:
        await stores.close()


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(script=steps, buffer=st.integers(1, 6), pending=st.integers(1, 4), page=st.integers(1, 4))
def test_nothing_is_lost_doubled_or_out_of_order(
    backend: str,
    tmp_path_factory: pytest.TempPathFactory,
    script: list[tuple[str, object]],
    buffer: int,
    pending: int,
    page: int,
) -> None:
    options = FeedOptions(buffer=buffer, pending=pending, page=page, heartbeat_s=15)
    happened = asyncio.run(play(backend, tmp_path_factory.mktemp("feed"), script, options))

    assert happened == 1 + sum(len(what) for name, what in script if name == "happen" and isinstance(what, list))
