"""Whether the clock of a server has had a step, as one process measures it and as all processes together know it."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
import pytest

from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.options import RedisAddress
from ade.stores.redis.clock import ServerClock, VerifiedClock
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.stores.redis.counting import linked

MS = 1_000_000  # in ns
START = 1_700_000_000_000  # ms, what the server shows at `BASE` of this machine's monotonic clock
BASE = time.monotonic_ns()
ONE, OTHER = RedisAddress("localhost", 6379), RedisAddress("localhost", 6380)
LEASE_MS = 30_000


def measured(clock: ServerClock, at_ms: int, ahead_ms: int = 0, address: RedisAddress = ONE, trip_ms: int = 2) -> None:
    """The server answered at this time, and was ahead of where it began by this much."""
    middle, half = BASE + at_ms * MS, trip_ms * MS // 2
    clock.observe((START + at_ms + ahead_ms) * 1000, middle - half, middle + half, address)


def since(clock: ServerClock, address: RedisAddress = ONE) -> int:
    """Since when the clock has had no step, counted from the start."""
    found = clock.verified(0, address)
    assert isinstance(found, VerifiedClock)
    return found.since_ms - START


def step(clock: ServerClock, address: RedisAddress = ONE) -> int:
    found = clock.verified(0, address)
    assert isinstance(found, VerifiedClock)
    return found.step_ms


# what one process measures


def test_nothing_is_known_before_the_first_measurement() -> None:
    assert ServerClock().verified(0, ONE) is False
    assert ServerClock().verified(0, None) is False


def test_a_clock_that_drifts_and_is_slewed_has_no_step() -> None:
    clock = ServerClock()
    for at_ms, ahead_ms in ((0, 0), (10_000, 900), (20_000, -800), (30_000, 1000)):
        measured(clock, at_ms, ahead_ms)
    assert -2 <= since(clock) <= 2
    assert step(clock) == 0


def test_a_jump_forward_is_a_step_and_begins_a_new_time() -> None:
    clock = ServerClock()
    measured(clock, 0)
    measured(clock, 10_000, 60_000)
    assert abs(since(clock) - 70_000) <= 2
    assert abs(step(clock) - 60_000) <= 2


def test_a_slow_answer_that_may_explain_the_jump_is_no_step() -> None:
    clock = ServerClock()
    measured(clock, 0)
    measured(clock, 10_000, 5_000, trip_ms=12_000)
    assert step(clock) == 0


def test_a_jump_back_moves_the_beginning_along() -> None:
    clock = ServerClock()
    measured(clock, 0)
    measured(clock, 10_000, -60_000)
    assert abs(since(clock) + 60_000) <= 2
    assert step(clock) == 0


def test_a_partition_that_moves_to_a_server_with_another_time_has_a_step() -> None:
    clock = ServerClock()
    measured(clock, 0)
    measured(clock, 0, 60_000, OTHER)
    assert step(clock) == 0
    assert abs(step(clock, OTHER) - 60_000) <= 2


def test_a_partition_that_moves_to_a_server_with_the_same_time_has_none() -> None:
    clock = ServerClock()
    measured(clock, 0)
    before = since(clock)
    measured(clock, 10_000, 500, OTHER)
    assert since(clock, OTHER) == before
    assert step(clock, OTHER) == 0


def test_a_partition_that_moves_to_a_server_whose_clock_is_behind_has_none_and_its_beginning_moves_along() -> None:
    clock = ServerClock()
    measured(clock, 0)
    before = since(clock)
    measured(clock, 10_000, -60_000, OTHER)
    assert abs(since(clock, OTHER) - (before - 60_000)) <= 2
    assert step(clock, OTHER) == 0


def test_only_the_server_that_shows_another_time_is_measured_again() -> None:
    clock = ServerClock()
    measured(clock, 0)
    measured(clock, 0, address=OTHER)
    clock.measure_soon(OTHER)
    assert not clock.due(BASE, ONE)
    assert clock.due(BASE, OTHER)
    measured(clock, 10, address=ONE)
    assert clock.due(BASE, OTHER), "another server says nothing about it"
    measured(clock, 10, address=OTHER)
    assert not clock.due(BASE, OTHER)


def test_all_processes_of_a_machine_measure_by_the_same_clock() -> None:
    found = []
    for _ in range(2):
        clock = ServerClock()
        measured(clock, 0)
        verified = clock.verified(0, ONE)
        assert isinstance(verified, VerifiedClock)
        found.append((verified.ahead_ms, verified.machine))
    assert found[0] == found[1]


def test_servers_with_different_times_are_each_without_a_step() -> None:
    clock = ServerClock()
    for at_ms in range(0, 60_000, 10_000):
        measured(clock, at_ms)
        measured(clock, at_ms, 60_000, OTHER)
        assert step(clock) == 0


def test_a_process_judges_no_lease_soon_after_its_start_and_after_a_step() -> None:
    clock, now_ms = ServerClock(lambda: ONE), (time.monotonic_ns() - BASE) // MS
    measured(clock, now_ms - LEASE_MS)
    assert clock.judged(LEASE_MS) == pytest.approx(clock.steady(), abs=100)
    assert clock.judged(3 * LEASE_MS) == 0, "it watches for less than half of such a lease"
    measured(clock, now_ms - LEASE_MS // 2, 60_000)
    assert clock.judged(LEASE_MS) == 0
    assert clock.judged(LEASE_MS // 2 - 1000) == pytest.approx(clock.steady(), abs=100)


def test_on_a_cluster_all_processes_follow_the_server_of_the_first_partition() -> None:
    early, late, now_ms = ServerClock(lambda: ONE), ServerClock(lambda: ONE), (time.monotonic_ns() - BASE) // MS
    measured(early, now_ms - LEASE_MS)
    measured(late, now_ms - LEASE_MS, -60_000, OTHER)  # it is all that is known at first
    measured(late, now_ms - LEASE_MS)
    for clock in (early, late):
        measured(clock, now_ms, 60_000, OTHER)
        assert clock.steady() == pytest.approx(START + (time.monotonic_ns() - BASE) // MS, abs=100)
        assert clock.judged(LEASE_MS) == pytest.approx(clock.steady(), abs=100), "a step of another server is none here"


# what all processes know together


@dataclass
class Watched:
    """A partition of a real server, and processes that say what they know of its clock. Times are ms before now."""

    link: RedisClient
    url: str

    async def say(
        self, since: int, *, off: int = 0, step: int = 0, before: int = 0, ahead: int = 0, machine: str = ""
    ) -> bool:
        """A sweep of a process that has seen no step for so long; returns whether it could trust the time."""
        now = await self.link.time(0)
        clock = VerifiedClock(now - since, now - 2000 + off, now + 2000 + off, step, now - before, ahead, machine)
        answer = await self.link.run("due_tasks", 0, {"limit": 10, "clock": clock})
        return bool(answer[4])

    async def mark(
        self,
        since: int,
        until: int,
        share: float = 0.5,
        earlier: int | None = None,
        floor: int = 0,
        ahead: int = 0,
        machine: str = "",
    ) -> None:
        """What the processes have said before."""
        now = await self.link.time(0)
        before = False if earlier is None else now - earlier
        stored = (now - since, now - until, share, before, floor and now - floor, ahead, machine)
        await self.link.ask(0, ("HSET", "ade:meta", "continuous", msgspec.msgpack.encode(stored)))

    async def known(self) -> tuple[int, float, int | None]:
        """Since when, the share, and `earlier`; times rounded to seconds before now."""
        [stored] = await self.link.ask(0, ("HGET", "ade:meta", "continuous"))
        since, until_ms, share, earlier, *_ = msgspec.msgpack.decode(stored)
        seconds = [None if not each else round((until_ms - each) / 1000) for each in (since, earlier)]
        return seconds[0] or 0, share, seconds[1]


@pytest.fixture
async def watched(server_binary: Binary, server_pool: Pool) -> AsyncIterator[Watched]:
    url = server_pool.standalone(server_binary.kind).url
    async with linked(url) as link:
        yield Watched(link, url)


async def test_the_first_process_begins(watched: Watched) -> None:
    assert await watched.say(5_000)
    assert await watched.known() == (5, 0.5, None)


async def test_a_process_that_expects_another_time_is_not_trusted_and_changes_nothing(watched: Watched) -> None:
    await watched.mark(90_000, 1_000)
    assert not await watched.say(90_000, off=-60_000)
    assert not await watched.say(90_000, off=60_000)
    assert (await watched.known())[1:] == (0.5, None)


async def test_a_new_process_takes_over_what_others_watched_until_a_moment_ago(watched: Watched) -> None:
    await watched.mark(90_000, 1_000)
    assert await watched.say(500)
    assert await watched.known() == (90, 0.5, None)


async def test_a_new_process_begins_anew_where_nobody_watched(watched: Watched) -> None:
    await watched.mark(90_000, 60_000)
    await watched.say(500)
    since_s, share, earlier_s = await watched.known()
    assert (since_s, share, earlier_s) in ((0, 0.5, 90), (1, 0.5, 90))


async def test_a_process_of_the_same_machine_can_tell_that_there_was_no_step_while_nobody_watched(
    watched: Watched,
) -> None:
    await watched.mark(90_000, 60_000, machine="a")
    await watched.say(500, ahead=300, machine="a")
    assert await watched.known() == (90, 0.5, None)


async def test_the_processes_of_this_machine_know_each_other(watched: Watched) -> None:
    first = watched.link.verified(0)
    assert isinstance(first, VerifiedClock)
    if not first.machine:
        pytest.skip("this system has no boot ID")
    await watched.mark(90_000, 60_000, ahead=first.ahead_ms, machine=first.machine)
    async with linked(watched.url) as other:
        await other.run("due_tasks", 0, {"limit": 10, "clock": other.verified(0)})
    assert await watched.known() == (90, 0.5, None)


@pytest.mark.parametrize(
    ("ahead", "machine"),
    [
        pytest.param(55_000, "a", id="stepped"),
        pytest.param(-55_000, "a", id="set back"),
        pytest.param(0, "b", id="another machine"),
        pytest.param(0, "", id="a machine without a name"),
    ],
)
async def test_no_other_process_can(watched: Watched, ahead: int, machine: str) -> None:
    await watched.mark(90_000, 60_000, machine=machine if not machine else "a")
    await watched.say(500, ahead=ahead, machine=machine)
    assert (await watched.known())[0] <= 1


async def test_the_first_observation_stays_while_short_processes_come_and_go(watched: Watched) -> None:
    await watched.mark(40_000, 40_000, earlier=90_000)
    await watched.say(500)
    assert (await watched.known())[2] == 90


async def test_a_step_holds_leases_back_for_their_whole_length_and_is_logged_once(watched: Watched) -> None:
    await watched.mark(90_000, 60_000)
    await watched.say(1_000, step=58_000, before=61_000)
    await watched.say(900, step=58_000, before=61_000)
    assert await watched.known() == (1, 1, None)
    [warning] = await clock_events(watched.link)
    assert warning == {"what": "clock_stepped", "step_ms": 58_000, "partition": 0}


async def test_a_step_that_a_new_process_could_not_see_is_still_reported(watched: Watched) -> None:
    await watched.mark(3_000, 500)  # the new process has begun three seconds ago
    await watched.say(1_000, step=58_000, before=61_000)
    assert await watched.known() == (3, 1, None)
    assert len(await clock_events(watched.link)) == 1


async def test_a_suspended_machine_is_outvoted_by_those_who_watched_meanwhile(watched: Watched) -> None:
    await watched.mark(90_000, 500)
    await watched.say(1_000, step=58_000, before=61_000)
    assert await watched.known() == (90, 0.5, None)
    assert await clock_events(watched.link) == []


async def test_a_clock_that_was_set_back_and_corrected_begins_anew_for_those_who_have_not_noticed(
    watched: Watched,
) -> None:
    await watched.mark(160_000, 60_000, floor=5_000)
    await watched.say(100_000)
    assert (await watched.known())[:2] == (0, 1)


async def clock_events(link: RedisClient) -> list[dict[str, object]]:
    [entries] = await link.ask(0, ("XRANGE", "ade:events", "-", "+"))
    events = [event for _, fields in entries for event in msgspec.msgpack.decode(fields[1])]
    return [event[4] for event in events if event[0] == "alert"]
