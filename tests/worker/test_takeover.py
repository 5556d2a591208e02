"""A worker is killed in mid-task: the whole story on a clock that moves when told to, with the default lease.

tests/faults/test_killed_worker.py tells the same story with a real process, a real signal and real time.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from ade import Context, Status, Task
from ade.errors import StaleLease
from ade.settings.sections import SweepSettings
from ade.testing import TestClock
from ade.worker.poller import fresh_ids
from tests.conformance.backends import sound
from tests.domain import (
    FINAL_EVENTS,
    ClaimRequest,
    Stores,
    Succeeded,
    Worker,
    WorkerOptions,
    open_stores,
    settle,
    settle_due,
)
from tests.worker.harness import Workshop, plain

DEFAULTS, SWEEPS = WorkerOptions(), SweepSettings()
PROMISE_S = 35.0
VICTIM = Worker(id="victim", hostname="here", pid=1, started_at=0, version="0")


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
async def stores(clock: TestClock) -> AsyncIterator[Stores]:
    async with sound(await open_stores("memory://", clock=clock)) as opened:
        yield opened


async def taken_by_the_victim(stores: Stores) -> Task:
    """A worker takes the task with the default lease, beats once, and is killed."""
    request = ClaimRequest(
        worker_id=VICTIM.id, run_ids=fresh_ids(1), names=frozenset({"build"}), lease_ms=DEFAULTS.lease_ms
    )
    [task] = await stores.tasks.claim(request)
    await asyncio.to_thread(stores.workers.renew, VICTIM, {str(task.run_id): task.id}, lease_ms=DEFAULTS.lease_ms)
    return task


async def test_the_task_of_a_killed_worker_runs_elsewhere_within_35_seconds_and_its_late_twin_is_refused(
    workshop: Workshop, stores: Stores, clock: TestClock
) -> None:
    async def build(ctx: Context) -> str:
        return f"built by attempt {ctx.attempt}"

    task = await workshop.enqueue(workshop.handle(build))
    late = await taken_by_the_victim(stores)
    killed_at = clock.steady()
    async with workshop.worker():
        clock.advance(DEFAULTS.lease_s)
        assert await settle_due(stores) == 0  # to the last millisecond the lease is the victim's
        clock.advance(SWEEPS.interval_s)
        assert await settle_due(stores) == 1
        final = await workshop.final(task)

    assert plain(final.result) == "built by attempt 2"
    assert clock.steady() - killed_at <= PROMISE_S * 1000
    held = {str(late.run_id): late.id}
    renewal = await asyncio.to_thread(stores.workers.renew, VICTIM, held, lease_ms=DEFAULTS.lease_ms)
    assert renewal.gone == {late.run_id: Status.COMPLETED}
    with pytest.raises(StaleLease):
        await stores.tasks.commit(settle(late, Succeeded(Raw(b'"too late"')), now=clock.now(), randomness=0.5))
    assert await workshop.get(task) == final
    assert [kind for kind in await workshop.event_types(task) if kind in FINAL_EVENTS] == ["task.succeeded"]
