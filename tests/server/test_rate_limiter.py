"""How often somebody may ask: as often as was said and not once more, with few writes, for all servers together."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ade.common.gcra import RateState, available, next_allowed_ms, possible, take
from ade.errors import StoreUnavailable
from ade.server.rate_limits import WEB_RATES, RateLimiter
from ade.testing import TestClock
from tests.conformance.backends import BACKENDS
from tests.depth import examples
from tests.domain import Stores, TrafficClass


@pytest.fixture(params=BACKENDS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, clock)
    yield opened
    await opened.close()


class Counting:
    """The store's rates alone, by its own rules, and how often they were asked."""

    def __init__(self, clock: TestClock) -> None:
        self._clock = clock
        self._states: dict[str, RateState] = {}
        self.writes = 0

    async def take_rate(self, key: str, count: int, period_ms: int, *, times: int = 1) -> int:
        self.writes += 1
        await asyncio.sleep(0)  # as any store, it lets others have their turn
        now = self._clock.steady()
        state = possible(self._states.get(key, RateState(0)), count=count, period_ms=period_ms, now_ms=now)
        if available(state, count=count, period_ms=period_ms, now_ms=now) < times:
            return next_allowed_ms(state, count=count, period_ms=period_ms, now_ms=now, times=times) - now
        self._states[key] = take(state, times, count=count, period_ms=period_ms, now_ms=now)
        return 0


async def passed(rates: RateLimiter, times: int, traffic: TrafficClass = TrafficClass.READ, who: str = "ada") -> int:
    return len([each for _ in range(times) if not (each := await rates.take(traffic, who)).wait_ms])


async def test_one_may_ask_as_often_as_was_said(stores: Stores, clock: TestClock) -> None:
    rates = RateLimiter(stores, {TrafficClass.LOGIN: (10, 60_000)}, times=0)

    assert await passed(rates, 30, TrafficClass.LOGIN) == 10
    refused = await rates.take(TrafficClass.LOGIN, "ada")
    assert refused.limit is not None
    assert (refused.limit.name, refused.wait_ms) == (TrafficClass.LOGIN, 6_000)
    assert await passed(rates, 1, TrafficClass.LOGIN, "bob") == 1
    clock.advance(6)
    assert await passed(rates, 30, TrafficClass.LOGIN) == 1


async def test_in_batches_it_is_never_more_and_hardly_less(stores: Stores, clock: TestClock) -> None:
    rates = RateLimiter(stores, times=0)
    count, period_ms = WEB_RATES[TrafficClass.READ]

    at_once = await passed(rates, 2 * count)
    assert count * 0.95 <= at_once <= count
    later = 0
    for _ in range(60):
        clock.advance(period_ms / 60_000)
        later += await passed(rates, 100)
    assert count * 0.95 <= later <= count + 1


async def test_many_who_ask_at_once_are_counted_as_often_as_they_ask(stores: Stores) -> None:
    rates = RateLimiter(stores)
    count, _ = WEB_RATES[TrafficClass.WRITE]

    at_once = await asyncio.gather(*(passed(rates, 100, TrafficClass.WRITE) for _ in range(2 * count // 100)))
    assert count * 0.95 <= sum(at_once) <= count


async def test_all_servers_count_together(stores: Stores) -> None:
    here, there = RateLimiter(stores, times=0), RateLimiter(stores, times=0)
    count, _ = WEB_RATES[TrafficClass.WRITE]

    assert await passed(here, count, TrafficClass.WRITE) + await passed(there, count, TrafficClass.WRITE) <= count


async def test_all_together_have_a_limit_too_and_whoever_is_refused_takes_nothing_of_it(stores: Stores) -> None:
    rates = RateLimiter(stores, {TrafficClass.VOTE: (10, 60_000)}, times=2)

    assert await passed(rates, 50, TrafficClass.VOTE, "ada") == 10
    assert await passed(rates, 50, TrafficClass.VOTE, "bob") == 10
    refused = await rates.take(TrafficClass.VOTE, "cyd")
    assert refused.limit is not None
    assert (refused.limit.count, refused.wait_ms > 0) == (20, True)


async def test_probes_and_what_has_no_rate_cost_nothing(clock: TestClock) -> None:
    counting = Counting(clock)
    rates = RateLimiter(_with(counting, clock), {TrafficClass.READ: (600, 60_000)})

    for traffic in (TrafficClass.PROBE, TrafficClass.WORK):
        assert (await rates.take(traffic, "ada")).limit is None
    assert counting.writes == 0


async def test_locks_are_counted_apart_for_each_agent(stores: Stores) -> None:
    rates = RateLimiter(stores, {TrafficClass.LOCK: (5, 1_000), TrafficClass.WORK: (5, 1_000)}, times=0)

    assert await passed(rates, 20, TrafficClass.LOCK, "agent:coder") == 5
    assert await passed(rates, 20, TrafficClass.LOCK, "agent:tester") == 5
    assert await passed(rates, 20, TrafficClass.WORK, "agent:coder") == 5


async def test_a_busy_server_hardly_writes(clock: TestClock) -> None:
    counting = Counting(clock)
    rates = RateLimiter(_with(counting, clock))

    assert await passed(rates, 1_000, TrafficClass.WORK) == 1_000
    assert counting.writes <= 2 * 1_000 / 50 + 2


async def test_who_goes_on_though_he_was_refused_costs_nothing(clock: TestClock) -> None:
    counting = Counting(clock)
    rates = RateLimiter(
        _with(counting, clock), {TrafficClass.LOGIN: (10, 60_000), TrafficClass.READ: (600, 60_000)}, times=2
    )
    for traffic, count in ((TrafficClass.LOGIN, 10), (TrafficClass.READ, 600)):
        await passed(rates, count + 1, traffic)
        counting.writes = 0
        assert await passed(rates, 1_000, traffic) == 0
        assert counting.writes <= 1
    clock.advance(6)
    assert await passed(rates, 10, TrafficClass.LOGIN) == 1


async def test_whoever_asks_slowly_is_never_refused_because_of_batches(clock: TestClock) -> None:
    rates = RateLimiter(_with(Counting(clock), clock), {TrafficClass.READ: (600, 60_000)}, times=0)

    for _ in range(2_000):
        clock.advance(0.11)
        assert await passed(rates, 1) == 1


async def test_several_servers_take_little_more_than_is_used(clock: TestClock) -> None:
    stores = _with(Counting(clock), clock)
    servers = [RateLimiter(stores, {TrafficClass.READ: (3_000, 60_000)}, times=0) for _ in range(5)]

    for _ in range(600):  # five minutes, with a fifth of what may be asked
        clock.advance(0.5)
        assert [await passed(server, 1) for server in servers] == [1] * 5


async def test_when_the_store_is_away_all_who_wait_are_told_at_once(clock: TestClock) -> None:
    class Away:
        tries = 0

        async def take_rate(self, key: str, count: int, period_ms: int, *, times: int = 1) -> int:
            self.tries += 1
            await asyncio.sleep(0)  # all hundred ask before the first hears
            raise StoreUnavailable

    away = Away()
    rates = RateLimiter(_with(away, clock), {TrafficClass.READ: (600, 60_000)})

    told = await asyncio.gather(*(rates.take(TrafficClass.READ, "ada") for _ in range(100)), return_exceptions=True)
    assert {type(each) for each in told} == {StoreUnavailable}
    assert away.tries == 1


def _with(counting: object, clock: TestClock) -> Stores:
    empty = dict.fromkeys(Stores.__struct_fields__)
    made = Stores(**empty)  # type: ignore[arg-type]  # nothing else of it is looked at
    return replace(made, documents=counting, clock=clock)


Steps = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 2)), min_size=50, max_size=400)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
@given(steps=Steps, count=st.integers(1, 400), period_ms=st.integers(1_000, 20_000))
async def test_in_no_span_of_time_more_pass_than_a_rate_allows(
    steps: Sequence[tuple[int, int]], count: int, period_ms: int
) -> None:
    """`count` at once, and from then on one every `period / count`: over three servers that each take batches."""
    clock = TestClock()
    stores = _with(Counting(clock), clock)
    servers = [RateLimiter(stores, {TrafficClass.READ: (count, period_ms)}, times=0) for _ in range(3)]
    moments: list[int] = []
    for waits, server in steps:
        clock.advance((waits if waits % 5 == 0 else waits % 7) / 1000)
        moments += [clock.steady()] * await passed(servers[server], 5)

    for first, began in enumerate(moments[:: max(1, len(moments) // 40)]):
        start = first * max(1, len(moments) // 40)
        for last in range(start, len(moments), max(1, len(moments) // 60)):
            span_ms = moments[last] - began
            assert last - start + 1 <= count + span_ms * count / period_ms + 1e-6
