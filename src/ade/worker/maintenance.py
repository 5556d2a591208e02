"""Maintenance jobs: which jobs exist, how often they run, and the loop that runs them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ade.approvals.submission import enqueue_guarded
from ade.errors import AdeError
from ade.events.alerts import report_alerts
from ade.events.metrics_collector import MetricsCollector, skip_to_end
from ade.logs import Log
from ade.settings import Settings
from ade.settings.runtime import default_timeout_ms
from ade.settings.sections import FigureSettings
from ade.stores.ports import Stores, SweepStore
from ade.tasks.identifiers import CURSOR, KIND, PREFERENCES_KIND
from ade.tasks.payloads import Payloads
from ade.tasks.schedules import fire_due
from ade.worker import sweep
from ade.worker.sweep import archive_and_prune


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceJob:
    """A periodic job. `perform` returns how much it did; it is repeated immediately while that is not 0."""

    name: str
    every_s: float
    perform: Callable[[], Awaitable[int]]
    may_run: Callable[[], bool] = lambda: True


def standard_jobs(
    stores: Stores,
    payloads: Payloads,
    settings: Settings,
    may_judge_leases: Callable[[], bool] = lambda: True,
) -> list[MaintenanceJob]:
    """Return the jobs that every worker process runs. Lost leases are left to other workers while this one's renewals
    are late.
    """

    async def fire_schedules() -> int:
        await fire_due(stores, payloads, settings.task, partial(default_timeout_ms, stores), enqueue_guarded)
        return 0  # everything due has fired: nothing to repeat

    kept = settings.sweep
    quick, slow, rare = kept.interval_s, max(kept.interval_s, 10.0), max(kept.interval_s, 3_600.0)
    prune = partial(
        archive_and_prune,
        stores,
        payloads,
        retention_s=kept.retention_s,
        dead_letter_retention_s=kept.dead_letter_retention_s,
        governed_retention_s=kept.governed_retention_s,
        archive_dir=None if kept.archive_dir is None else Path(kept.archive_dir),
        batch=kept.prune_batch,
    )
    settle = partial(sweep.settle_due, stores, payloads=payloads)
    trim = partial(sweep.trim_events, stores, retention_s=settings.events.retention_s)
    effects = partial(sweep.prune_effects, stores, retention_s=kept.effect_retention_s)
    inboxes = partial(sweep.forget_inboxes, stores, retention_s=kept.inbox_retention_s)
    has_keys = stores.maintenance.has_keys
    look_at_keys = partial(sweep.checkpoint, stores, only_keys=True)
    return [
        *([MaintenanceJob(name="keys", every_s=max(quick, 1.0), perform=look_at_keys)] if has_keys else []),
        MaintenanceJob(name="settle", every_s=quick, perform=settle, may_run=may_judge_leases),
        MaintenanceJob(name="locks", every_s=quick, perform=partial(sweep.serve_locks, stores)),
        MaintenanceJob(name="schedules", every_s=quick, perform=fire_schedules),
        MaintenanceJob(
            name="approvals",
            every_s=max(quick, 5.0),
            perform=partial(sweep.sweep_reviews_job, stores, payloads),
        ),
        MaintenanceJob(name="results", every_s=slow, perform=partial(sweep.expire_results, stores)),
        MaintenanceJob(name="prune", every_s=slow, perform=prune),
        MaintenanceJob(name="events", every_s=slow, perform=trim),
        MaintenanceJob(name="effects", every_s=slow, perform=effects),
        MaintenanceJob(name="documents", every_s=slow, perform=partial(sweep.expire_documents, stores)),
        MaintenanceJob(name="inboxes", every_s=slow, perform=inboxes),
        MaintenanceJob(name="workers", every_s=slow, perform=partial(sweep.forget_silent_workers, stores)),
        MaintenanceJob(name="orphans", every_s=rare, perform=partial(sweep.remove_orphans, stores)),
        MaintenanceJob(name="webhooks", every_s=max(quick, 1.0), perform=partial(_follow_webhooks, stores, payloads)),
        MaintenanceJob(
            name="notifications", every_s=max(quick, 1.0), perform=partial(_send_notifications, stores, payloads)
        ),
        _figures(stores, settings.figures, quick),
        MaintenanceJob(name="alerts", every_s=max(quick, 30.0), perform=partial(report_alerts, stores)),
        MaintenanceJob(name="checkpoint", every_s=slow, perform=partial(sweep.checkpoint, stores)),
    ]


async def _follow_webhooks(stores: Stores, payloads: Payloads) -> int:
    """Deliver webhooks; loads the delivery module only if there are any."""
    if not await stores.documents.list_documents(KIND) and not (await stores.events.cursors()).get(CURSOR, 0):
        return 0
    from ade.webhooks.dispatch import follow

    return await follow(stores, payloads)


async def _send_notifications(stores: Stores, payloads: Payloads) -> int:
    """Notify people; loads the modules for that only if anyone has ever had a channel."""
    if not await stores.documents.list_documents(PREFERENCES_KIND):
        return 0
    from ade.notifications.service import dispatch, follow

    return await follow(stores) + await dispatch(stores, payloads)


def _figures(stores: Stores, kept: FigureSettings, quick: float) -> MaintenanceJob:
    if not kept.enabled:
        return MaintenanceJob(name="figures", every_s=max(quick, 3_600.0), perform=partial(skip_to_end, stores))
    return MaintenanceJob(name="figures", every_s=max(quick, 1.0), perform=MetricsCollector(stores, kept).keep)


# The maintenance loop. It runs in every worker process; a short claim per job prevents concurrent runs of the same job.


_BLOCKED_S = 1.0  # if the store takes longer to respond, another process was blocking it
log = Log("ade.sweep")


async def run_jobs(store: SweepStore, jobs: Sequence[MaintenanceJob], holder: str) -> None:
    """Run all jobs, each at its own interval, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for duty in jobs:
            group.create_task(_repeat(store, duty, holder), name=f"ade-duty-{duty.name}")


async def run_job(
    store: SweepStore, duty: MaintenanceJob, holder: str, clock: Callable[[], float] = time.monotonic
) -> int:
    """Run a job once if this process can claim it. A failure is logged; the job runs again at the next interval."""
    return await try_job(store, duty, holder, clock) or 0


async def try_job(
    store: SweepStore, duty: MaintenanceJob, holder: str, clock: Callable[[], float] = time.monotonic
) -> int | None:
    """Like `run_job`, but returns None on failure."""
    if not duty.may_run():
        return 0
    began = clock()
    try:
        if not await store.take_duty(duty.name, holder, round(duty.every_s * 1500)):
            return 0
        if clock() - began > _BLOCKED_S:
            # The store was blocked, so renewals waited too. Let them go first, or live runs would be considered lost.
            log.warning("duty.postponed", duty=duty.name, waited_s=round(clock() - began, 1))
            return 0
        return await duty.perform()
    except AdeError as error:  # its message contains the cause and the remedy
        log.error("duty.failed", duty=duty.name, code=error.code, error=error.detail)
        return None
    except Exception:
        log.exception("duty.failed", duty=duty.name)
        return None


async def _repeat(store: SweepStore, duty: MaintenanceJob, holder: str) -> None:
    while True:
        if not await run_job(store, duty, holder):
            await asyncio.sleep(duty.every_s)
