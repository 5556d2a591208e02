"""The testing kit: time moves when told to, and nothing sleeps."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from ade import Ade, RateLimited, Status
from ade.testing import TestClock, TestKit, harness


def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock = TestClock(datetime(2031, 5, 1, tzinfo=UTC))
    start, steady = clock.now(), clock.steady()

    clock.advance(1.5)
    clock.advance(timedelta(minutes=1))
    assert (clock.now() - start, clock.steady() - steady) == (61_500, 61_500)
    clock.jump_wall(-3600)
    assert (clock.now() - start, clock.steady() - steady) == (61_500 - 3_600_000, 61_500)
    with pytest.raises(ValueError, match="jump_wall"):
        clock.advance(-1)


async def test_retries_come_after_their_delays(ade: Ade, kit: TestKit) -> None:
    @ade.task(max_attempts=3)
    async def flaky() -> str:
        attempts.append(kit.clock.now())
        if len(attempts) < 3:
            raise OSError("try again")
        return "done"

    attempts: list[int] = []
    task = await flaky.enqueue()
    assert await kit.drain() == 1
    assert await task.status() is Status.PENDING
    await kit.advance(1)
    assert await kit.drain() == 1
    await kit.advance(1)
    assert await kit.drain() == 0  # the second delay is two seconds
    await kit.advance(1)
    assert await kit.drain() == 1
    assert await task.result() == "done"


async def test_finish_moves_the_clock_to_whatever_is_due(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def limited() -> int:
        attempts.append(kit.clock.now())
        if len(attempts) < 5:
            raise RateLimited(retry_after=600)
        return len(attempts)

    attempts: list[int] = []
    task = await limited.with_options(delay=timedelta(days=2)).enqueue()

    assert await kit.finish() == 5
    assert await task.result() == 5
    assert attempts[-1] - attempts[0] == 4 * 600_000


async def test_a_drain_runs_what_running_tasks_enqueue_and_wait_for(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def inner() -> str:
        return "inner"

    @ade.task
    async def outer() -> str:
        return await (await inner.enqueue()).result(timeout=30)

    task = await outer.enqueue()
    assert await kit.drain() == 2
    assert await task.result() == "inner"


async def test_limits_hold_in_a_drain(ade: Ade, kit: TestKit) -> None:
    running: list[int] = []
    most: list[int] = []

    @ade.task(concurrency=2)
    async def narrow(number: int) -> None:
        running.append(number)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(number)

    await kit.drain()  # limits hold once a worker has made them known
    await ade.enqueue_many([narrow.call(number) for number in range(6)])
    assert await kit.drain() == 6
    assert max(most) == 2


async def test_the_app_goes_back_to_its_own_store_afterwards(ade: Ade) -> None:
    @ade.task
    async def work() -> None: ...

    async with harness(ade):
        inside = await work.enqueue()
        assert await inside.status() is Status.PENDING
    async with harness(ade) as kit:
        assert await kit.drain() == 0
    assert ade.opener.opened is None


async def test_a_task_past_its_deadline_fails_when_time_passes(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> None: ...

    task = await work.with_options(delay=10, deadline=60).enqueue()
    await kit.advance(61)

    assert await task.status() is Status.FAILED
    assert "deadline" in (await task.explain()).sentence
