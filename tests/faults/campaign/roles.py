"""What the processes of a campaign do until they are killed."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random

from ade.approvals.submission import replay
from ade.composition.audit import open_audit
from ade.errors import IllegalTransition
from ade.events.audit_copy import copy_events
from ade.tasks.dead_letters import replay_all
from tests.domain import Payloads, TaskQuery
from tests.faults.campaign.app import CampaignApp, key_of
from tests.faults.campaign.plan import Plan
from tests.faults.campaign.trails import ACKNOWLEDGED, PAYMENTS, RUNS, Trail, acknowledgements
from tests.waiting import is_set_within

PRODUCER, WORKER, HASTY_WORKER, CLERK = "producer", "worker", "hasty-worker", "clerk"
_A_LOT = 500
_LARGE_SIZES = (1, 50, 100)  # of batches, when there is much to catch up with
_SIZES = (1, 1, 1, 2, 5, 20)  # many small ones: a producer should be at it when it is killed
_REPLAYS = 0.02  # of all looks of a clerk: some dead letters stay what they are
_MOMENT_S = 0.02


def writer_name(role: str, slot: int) -> str:
    return f"{role}-{slot}"


def produce(plan: Plan, slot: int) -> None:
    """Keep enough tasks in flight; go on where the one before was killed."""
    asyncio.run(_until_told_to_stop(lambda stop: _produce(plan, slot, stop)))


async def _produce(plan: Plan, slot: int, stop: asyncio.Event) -> None:
    name = writer_name(PRODUCER, slot)
    trail = Trail(plan.place, ACKNOWLEDGED, name)
    number = sum(line.what == "enqueued" for line in acknowledgements(plan.place, name))
    app, randomness = CampaignApp(plan.settings()), Random()
    async with app.ade:
        while not stop.is_set():
            missing = plan.aim - await app.unfinished()
            if missing <= 0:
                await is_set_within(stop, _MOMENT_S)
                continue
            numbers = range(number, number + randomness.choice(_SIZES if missing < _A_LOT else _LARGE_SIZES))
            handles = await app.enqueue(slot, numbers)
            answers = [(key_of(slot, n), handle.id) for n, handle in zip(numbers, handles, strict=True)]
            trail.write(*(("enqueued", *answer) for answer in answers))
            for n, answer in zip(numbers, answers, strict=True):
                if n % 40 == 7:
                    await _cancel(app, trail, *answer)
            number = numbers.stop


async def _cancel(app: CampaignApp, trail: Trail, key: str, task_id: str) -> None:
    try:
        await app.ade.handle(task_id).cancel("no longer wanted")
    except IllegalTransition:  # it was faster
        return
    trail.write(("cancelled", key, task_id))


def work(plan: Plan, slot: int) -> None:
    _work(plan, slot, WORKER)


def work_hastily(plan: Plan, slot: int) -> None:
    _work(plan, slot, HASTY_WORKER)


def _work(plan: Plan, slot: int, role: str) -> None:
    hasty = role == HASTY_WORKER
    app = CampaignApp(plan.settings(slot=slot, hasty=hasty), pace=0.0 if hasty else 1.0)
    name = writer_name(role, slot)
    app.record_runs(Trail(plan.place, RUNS, name), Trail(plan.place, PAYMENTS, name))
    app.ade.run_worker()


def keep_books(plan: Plan, slot: int) -> None:
    """Copy events to the audit file, and give dead letters another life now and then."""
    asyncio.run(_until_told_to_stop(lambda stop: _keep_books(plan, stop)))


async def _keep_books(plan: Plan, stop: asyncio.Event) -> None:
    app, randomness = CampaignApp(plan.settings()), Random()
    async with app.ade, open_audit(plan.url, plan.audit_url) as copy:
        stores = (await app.ade.open()).stores
        while not stop.is_set():
            if not await copy_events(stores.events, copy):
                await is_set_within(stop, _MOMENT_S)
            if randomness.random() < _REPLAYS:
                one = partial(replay, stores, Payloads(stores.blobs))
                await replay_all(stores, TaskQuery(name="fragile"), limit=5, replay_one=one)


ROLES: Mapping[str, Callable[[Plan, int], None]] = {
    PRODUCER: produce,
    WORKER: work,
    HASTY_WORKER: work_hastily,
    CLERK: keep_books,
}


async def _until_told_to_stop(job: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await job(stop)
