"""The server's time, estimated from what it shows now and then."""

import time

from hypothesis import given
from hypothesis import strategies as st

from ade.stores.redis.client.options import RedisAddress
from ade.stores.redis.clock import ServerClock
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.stores.redis.counting import linked

MS = 1_000_000  # in ns
START = 1_700_000_000_000  # ms, what the server shows when this machine's monotonic clock shows `BASE`
BASE = time.monotonic_ns() + 3600 * 1000 * MS
SERVER = RedisAddress("localhost", 6379)


def measured(clock: ServerClock, server_ms: float, local_ms: float, round_trip_ms: float = 2) -> None:
    middle, half = BASE + int(local_ms * MS), int(round_trip_ms * MS / 2)
    clock.observe(int(server_ms * 1000), middle - half, middle + half, SERVER)


def shown(clock: ServerClock, local_ms: float) -> int:
    return clock.at(BASE + int(local_ms * MS))


def test_time_goes_on_from_the_last_measurement() -> None:
    clock = ServerClock()
    clock.at(time.monotonic_ns())
    future = START + 10**12  # ahead of any wall clock, so that the first guess does not matter
    measured(clock, future, 0)

    assert (shown(clock, 0), shown(clock, 1500)) == (future, future + 1500)


def test_a_slow_answer_does_not_spoil_what_a_quick_one_told() -> None:
    future = START + 10**12
    clock = ServerClock()
    measured(clock, future, 0, round_trip_ms=1)
    measured(clock, future + 1000 + 80, 1000, round_trip_ms=200)  # between 980 and 1180: says nothing new

    assert shown(clock, 2000) == future + 2000


def test_an_answer_that_contradicts_is_believed_however_slow() -> None:
    future = START + 10**12
    clock = ServerClock()
    measured(clock, future, 0, round_trip_ms=1)
    measured(clock, future + 61_000, 1000, round_trip_ms=200)

    assert shown(clock, 1000) == future + 61_000


def test_when_the_server_turns_out_to_be_behind_time_slows_down_but_never_goes_back() -> None:
    future = START + 10**12
    clock = ServerClock()
    measured(clock, future, 0)
    assert shown(clock, 1000) == future + 1000
    measured(clock, future, 1000)  # a second behind what was told

    assert shown(clock, 1000) == future + 1000
    assert shown(clock, 2000) == future + 1500  # half speed
    assert shown(clock, 3000) == future + 2000  # caught up
    assert shown(clock, 4000) == future + 3000


@given(
    st.lists(
        st.tuples(st.integers(0, 5000), st.one_of(st.none(), st.integers(-(10**7), 10**7)), st.integers(0, 3000)),
        max_size=30,
    )
)
def test_it_never_goes_backwards(steps: list[tuple[int, int | None, int]]) -> None:
    clock, local, last = ServerClock(), 0, 0
    for passed, wrong_by, round_trip in steps:
        local += passed
        if wrong_by is not None:
            measured(clock, START + local + wrong_by, local, round_trip)
        now = shown(clock, local)
        assert now >= last
        last = now


def test_it_wants_to_be_measured_at_first_and_then_every_ten_seconds() -> None:
    clock = ServerClock()
    assert clock.due(BASE, SERVER)
    measured(clock, START, 0)

    assert not clock.due(BASE + 9000 * MS, SERVER)
    assert clock.due(BASE + 11_000 * MS, SERVER)


async def test_traffic_measures_the_time_of_a_real_server(server_binary: Binary, server_pool: Pool) -> None:
    async with linked(server_pool.standalone(server_binary.kind).url) as link:
        assert not link.server_clock.due(time.monotonic_ns(), link.place.addresses[0])  # opening it was traffic
        await link.server_clock.measure(link)

        [before] = await link.ask(0, ("TIME",))
        now, steady = link.clock.now(), link.clock.steady()
        [after] = await link.ask(0, ("TIME",))
        assert milliseconds(before) - 500 < now < milliseconds(after) + 500
        assert steady >= now - 1


def milliseconds(told: list[bytes]) -> int:
    """The time as a server tells it: seconds, and the microseconds beyond."""
    return int(told[0]) * 1000 + int(told[1]) // 1000
