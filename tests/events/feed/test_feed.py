"""The live feed: what each subscriber is given, when it is quick, slow, late, or comes from long ago."""

import asyncio

import pytest

from ade import Task
from ade.errors import StoreUnavailable
from ade.events.feed import EventFeed, available_since
from ade.events.feed_items import EventBatch, FeedEnd, FeedHeartbeat, Gap
from ade.events.filters import EventFilter
from ade.events.hub import FeedOptions
from ade.testing import TestClock
from tests.domain import Event, Payloads, Queue, Stores, enqueue
from tests.events.feed.manual_feed import KEPT_S, House, seqs, settle


@pytest.fixture
def house(stores: Stores, clock: TestClock) -> House:
    return House(stores, clock)


async def test_a_subscriber_gets_what_happens_from_now_on(house: House) -> None:
    await house.happen("task.created", "task.claimed")
    await house.feed.step()
    subscription = house.subscribe()
    assert await house.read(subscription) == [FeedHeartbeat(2)]
    await house.happen("task.succeeded")
    await house.feed.step()
    assert await house.read_seqs(subscription) == [3]
    assert await house.read(subscription) == []


async def test_only_what_the_filter_wants_is_given(house: House) -> None:
    await house.feed.step()
    failures, tasks = await house.join("task.failed"), await house.join("task.*")
    await house.happen("task.created", "lock.acquired", "task.failed")
    await house.feed.step()
    assert await house.read_seqs(failures) == [3]
    assert await house.read_seqs(tasks) == [1, 3]


async def test_who_wants_certain_tasks_gets_their_events(house: House) -> None:
    await house.feed.step()
    names = ["a", "b"]
    subscriptions = [house.feed.subscribe(EventFilter(task_ids=frozenset({name}))) for name in names]
    for subscription in subscriptions:
        await house.read(subscription)
    for name in ["a", "c", "b", "a"]:
        event = Event(type="agent_run.began", at=0, payload={"task_id": name})
        await house.stores.queues.configure(Queue(name="q"), event)
    await house.feed.step()
    assert [await house.read_seqs(each) for each in subscriptions] == [[1, 4], [3]]
    for subscription in subscriptions:
        subscription.close()
    assert len(house.feed) == 0


async def test_what_was_missed_comes_from_memory(house: House) -> None:
    await house.happen(*["alert"] * 3)
    await house.feed.step()
    subscription = house.subscribe(after=1)
    await house.happen("alert")
    await house.feed.step()
    assert await house.read_seqs(subscription) == [2, 3, 4]
    assert not await house.feed.catch_up()


async def test_what_memory_has_lost_comes_from_the_log(house: House) -> None:
    await house.happen(*["alert"] * 20)
    await house.feed.step()
    assert await house.read(house.subscribe(after=0)) != []
    subscription = house.subscribe("alert", after=2)
    assert await house.read_seqs(subscription) == list(range(3, 21))
    await house.happen("alert")
    await house.feed.step()
    assert await house.read_seqs(subscription) == [21]


async def test_one_page_is_read_for_all_who_want_the_same(house: House, stores: Stores) -> None:
    await house.happen(*["alert"] * 10)
    await house.feed.step()
    subscriptions = [house.subscribe(after=1) for _ in range(5)]
    waiting = [asyncio.ensure_future(anext(each)) for each in subscriptions]
    await settle()
    assert await house.feed.catch_up()
    await settle()
    assert [seqs([await each]) for each in waiting] == [[2, 3]] * 5


async def test_one_that_reads_too_slowly_catches_up_and_loses_nothing(house: House) -> None:
    await house.feed.step()
    slow, quick = await house.join(), await house.join()
    taken = []
    for _ in range(30):
        await house.happen("alert")
        await house.feed.step()
        taken += await house.read_seqs(quick)
    assert taken == list(range(1, 31))
    assert not slow.is_live
    assert len(slow._pending) <= house.options.pending
    assert await house.read_seqs(slow) == taken
    assert slow.is_live


async def test_more_at_once_than_may_wait_wakes_who_waits(house: House) -> None:
    await house.feed.step()
    subscription = await house.join()
    waiting = asyncio.ensure_future(anext(subscription))
    await settle()
    await house.happen(*["alert"] * 8)
    await house.feed.step()
    first = await waiting
    assert seqs([first, *await house.read(subscription)]) == list(range(1, 9))


async def test_after_zero_is_all_that_is_kept_and_no_gap(house: House, clock: TestClock) -> None:
    await house.happen("alert", "alert")
    clock.advance(KEPT_S + 1)
    await house.happen("alert", "alert")
    assert await house.trim() == 2
    await house.feed.step()
    items = await house.read(house.subscribe(after=0))
    assert seqs(items) == [3, 4]
    assert not [item for item in items if isinstance(item, Gap)]


async def test_what_was_trimmed_makes_a_gap(house: House, clock: TestClock) -> None:
    await house.happen("alert", "alert", "alert")
    clock.advance(KEPT_S + 1)
    await house.happen("alert")
    assert await house.trim() == 3
    await house.feed.step()
    subscription = house.subscribe(after=1)
    gap, *rest = await house.read(subscription)
    assert gap == Gap(1, 3)
    assert seqs(rest) == [4]


async def test_what_is_in_memory_is_not_missed_when_it_is_trimmed(house: House, clock: TestClock) -> None:
    await house.happen("alert", "alert", "alert")
    await house.feed.step()
    clock.advance(KEPT_S + 1)
    assert await house.trim() == 3
    subscription = house.subscribe(after=1)
    assert await house.read_seqs(subscription) == [2, 3]


async def test_memory_fills_the_holes_of_the_log(house: House, clock: TestClock) -> None:
    await house.happen(*["alert"] * 9)
    await house.feed.step()  # memory begins behind 5 now
    clock.advance(KEPT_S + 1)
    assert await house.trim() == 9
    await house.happen("alert")
    await house.feed.step()
    gap, *rest = await house.read(house.subscribe(after=4))
    assert gap == Gap(4, 5)
    assert seqs(rest) == [6, 7, 8, 9, 10]


async def test_everything_trimmed_is_a_gap_too(house: House, clock: TestClock) -> None:
    await house.happen("alert", "alert", "alert")
    clock.advance(KEPT_S + 1)
    await house.trim()
    await house.feed.step()
    assert await house.read(house.subscribe(after=1)) == [Gap(1, 3)]
    at_the_end = house.subscribe(after=3)
    assert await house.read(at_the_end) == []
    await house.happen("alert")
    await house.feed.step()
    assert await house.read_seqs(at_the_end) == [4]


async def test_a_reader_that_was_away_too_long_tells_of_a_gap(house: House, clock: TestClock) -> None:
    await house.happen("alert")
    await house.feed.step()
    live = await house.join()
    await house.happen("alert", "alert")
    clock.advance(KEPT_S + 1)
    await house.trim()
    await house.happen("alert")
    await house.feed.step()
    gap, *rest = await house.read(live)
    assert gap == Gap(1, 3)
    assert seqs(rest) == [4]


async def test_a_place_behind_the_end_of_the_log_is_set_back_with_a_gap(house: House) -> None:
    await house.happen("alert", "alert")
    await house.feed.step()
    subscription = house.subscribe(after=50)
    assert await house.read(subscription) == [Gap(2, 50)]
    await house.happen("alert")
    await house.feed.step()
    assert await house.read_seqs(subscription) == [3]


async def test_who_comes_from_a_process_that_was_ahead_gets_nothing_twice(house: House) -> None:
    await house.happen("alert")
    await house.feed.step()
    await house.happen("alert", "alert", "alert")
    subscription = house.subscribe(after=3)  # the other process had already given it that
    assert await house.read_seqs(subscription) == [4]
    await house.happen("alert")
    await house.feed.step()
    assert await house.read_seqs(subscription) == [5]


async def test_heartbeats_come_when_nothing_else_does(house: House, clock: TestClock) -> None:
    await house.happen("alert")
    await house.feed.step()
    quiet, busy = await house.join("task.*"), await house.join()
    clock.advance(10)
    await house.happen("alert")
    await house.feed.step()
    clock.advance(10)
    assert house.feed.beat() == 1
    assert house.feed.beat() == 0
    assert await house.read(quiet) == [FeedHeartbeat(2)]  # it may go on behind an event that it did not want
    assert await house.read_seqs(busy) == [2]


async def test_before_the_log_was_read_there_are_heartbeats_without_a_place(house: House, clock: TestClock) -> None:
    await house.happen("alert")
    subscription = house.subscribe()
    clock.advance(20)
    house.feed.beat()
    assert await house.read(subscription) == [FeedHeartbeat(None)]
    await house.feed.step()
    assert await house.read(subscription) == [FeedHeartbeat(1)]
    await house.happen("alert")
    await house.feed.step()
    assert await house.read_seqs(subscription) == [2]


async def test_everybody_gets_an_end_behind_what_waits(house: House) -> None:
    await house.feed.step()
    live, late = await house.join(), house.subscribe(after=0)
    await house.happen("alert")
    await house.feed.step()
    house.feed.close("shutdown")
    [batch, end] = await house.read(live)
    assert isinstance(batch, EventBatch)
    assert end == FeedEnd("shutdown")
    assert await house.read(late) == [FeedEnd("shutdown")]
    assert await house.read(house.subscribe(after=0)) == [FeedEnd("shutdown")]
    assert [item async for item in live] == []


async def test_a_closed_subscription_is_forgotten(house: House) -> None:
    await house.feed.step()
    with house.subscribe() as subscription:
        await house.read(subscription)
        assert len(house.feed) == 1
    assert len(house.feed) == 0
    await house.happen("alert")
    await house.feed.step()
    assert [item async for item in subscription] == []


async def test_a_running_feed_hears_of_new_tasks_by_itself(stores: Stores, clock: TestClock) -> None:
    house = House(stores, clock, FeedOptions(poll_s=600.0, pace_s=0.001))
    await house.feed.step()
    running = asyncio.create_task(house.feed.run())
    with house.subscribe("task.created", after=0) as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await settle()
        await enqueue(stores, Payloads(stores.blobs), [Task(id="01900000-0000-7000-8000-000000000001", name="work")])
        item = await asyncio.wait_for(waiting, 60)
        assert isinstance(item, EventBatch)
        assert b"event: task.created\n" in item.text
        house.feed.close("shutdown")
        assert [each async for each in subscription] == [FeedEnd("shutdown")]
    await asyncio.wait_for(running, 60)


async def test_a_feed_that_is_cancelled_ends_all_subscriptions(house: House) -> None:
    running = asyncio.create_task(house.feed.run())
    subscription = house.subscribe(after=0)
    await settle()
    running.cancel()
    assert [item async for item in subscription] == [FeedEnd("the event feed was stopped")]
    with pytest.raises(asyncio.CancelledError):
        await running


class Flaky:
    """A log that cannot be read now and then, or keeps one reader waiting."""

    def __init__(self, house: House) -> None:
        self.fails = False
        self.error: type[Exception] = StoreUnavailable
        self.gate: asyncio.Event | None = None  # the next one to read waits for it
        self._events = house.stores.events

    async def read(self, after: int, limit: int, *, task_id: str | None = None) -> list[Event]:
        if self.fails:
            raise self.error
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.wait()
        return await self._events.read(after, limit, task_id=task_id)

    def __getattr__(self, name: str) -> object:
        return getattr(self._events, name)


def feed_on(log: Flaky, house: House) -> EventFeed:
    return EventFeed(
        log,  # type: ignore[arg-type]
        house.stores.wakeups,
        house.clock,
        retained_since=lambda: 0,
        options=house.options,
    )


async def test_a_page_that_comes_too_late_gives_nothing_twice(house: House) -> None:
    log = Flaky(house)
    house.feed = feed_on(log, house)
    await house.happen("alert")
    await house.feed.step()
    await house.happen("alert", "alert")
    subscription = house.subscribe(after=3)  # ahead of the reader here
    gate = log.gate = asyncio.Event()
    waiting = asyncio.ensure_future(anext(subscription))
    await settle()
    late = asyncio.ensure_future(house.feed.catch_up())
    await settle()
    waiting.cancel()
    await house.feed.step()
    assert await house.read(subscription) == []  # memory has helped meanwhile
    await house.happen("alert")
    await house.feed.step()
    assert await house.read_seqs(subscription) == [4]
    gate.set()
    await late
    assert await house.read(subscription) == []


async def test_a_page_that_could_not_be_read_is_asked_for_again(house: House) -> None:
    await house.happen(*["alert"] * 12)
    log = Flaky(house)
    house.feed = feed_on(log, house)
    await house.feed.step()
    subscription = house.subscribe(after=1)
    waiting = asyncio.ensure_future(anext(subscription))
    await settle()
    log.fails = True
    with pytest.raises(StoreUnavailable):
        await house.feed.catch_up()
    await settle()
    log.fails = False
    assert await house.feed.catch_up()
    assert seqs([await waiting, *await house.read(subscription)]) == list(range(2, 13))


def test_what_is_nearly_old_enough_to_be_trimmed_is_not_relied_on(clock: TestClock) -> None:
    assert available_since(clock, 3_600)() == clock.now() - 3_540_000
    assert available_since(clock, 10)() == clock.now() - 5_000


@pytest.mark.parametrize("wrong", [{"buffer": 0}, {"heartbeat_s": -1}, {"pace_s": 2.0, "poll_s": 1.0}])
def test_wrong_options_are_refused_at_the_start(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        FeedOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [StoreUnavailable, ZeroDivisionError])
async def test_whatever_keeps_the_log_from_being_read_the_feed_goes_on_afterwards(
    house: House, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr("ade.events.feed._PATIENCE_S", 0.01)
    log = Flaky(house)
    log.fails, log.error = True, error
    feed = feed_on(log, house)
    running = asyncio.create_task(feed.run())
    with feed.subscribe(after=0) as subscription:
        await settle()
        await house.happen("task.created")
        log.fails = False
        async with asyncio.timeout(60):
            item = await anext(subscription)
    feed.close("it is over")
    await running
    assert isinstance(item, EventBatch)
    assert [event.type for event in item.events] == ["task.created"]
