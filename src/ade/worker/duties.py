"""Which duties there are and how often each is done."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from ade.core.webhooks.names import CURSOR, KIND
from ade.governance.firing import keep_guarded
from ade.governance.runtime import default_timeout_ms
from ade.insight.figures.keeping import FigureKeeper, stand_aside
from ade.ports import Stores
from ade.queue.defaults import TaskDefaults
from ade.queue.payloads import Payloads
from ade.queue.schedules import fire_due
from ade.worker import sweep
from ade.worker.options import SweepOptions
from ade.worker.retention import archive_and_prune


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """`perform` answers how much it did; as long as it did something it is repeated at once."""

    name: str
    every_s: float
    perform: Callable[[], Awaitable[int]]
    may_run: Callable[[], bool] = lambda: True


def standard_duties(
    stores: Stores,
    payloads: Payloads,
    defaults: TaskDefaults,
    options: SweepOptions,
    may_judge_leases: Callable[[], bool] = lambda: True,
) -> list[Duty]:
    """What every process with a worker does. Judging leases is left to others while our own renewals are late."""

    async def fire_schedules() -> int:
        await fire_due(stores, payloads, defaults, partial(default_timeout_ms, stores), keep_guarded)
        return 0  # what is due now has been fired: nothing to repeat

    quick, slow, rare = options.interval_s, max(options.interval_s, 10.0), max(options.interval_s, 3_600.0)
    prune = partial(
        archive_and_prune,
        stores,
        payloads,
        retention_s=options.retention_s,
        dead_letter_retention_s=options.dead_letter_retention_s,
        archive_dir=options.archive_dir,
        batch=options.prune_batch,
    )
    settle = partial(sweep.settle_ripe, stores, payloads=payloads)
    trim = partial(sweep.trim_events, stores, retention_s=options.event_retention_s)
    effects = partial(sweep.prune_effects, stores, retention_s=options.effect_retention_s)
    inboxes = partial(sweep.forget_inboxes, stores, retention_s=options.inbox_retention_s)
    return [
        Duty(name="settle", every_s=quick, perform=settle, may_run=may_judge_leases),
        Duty(name="locks", every_s=quick, perform=partial(sweep.serve_locks, stores)),
        Duty(name="schedules", every_s=quick, perform=fire_schedules),
        Duty(
            name="approvals",
            every_s=max(options.interval_s, 5.0),
            perform=partial(sweep.tend_reviews, stores, payloads),
        ),
        Duty(name="results", every_s=slow, perform=partial(sweep.expire_results, stores)),
        Duty(name="prune", every_s=slow, perform=prune),
        Duty(name="events", every_s=slow, perform=trim),
        Duty(name="effects", every_s=slow, perform=effects),
        Duty(name="documents", every_s=slow, perform=partial(sweep.expire_documents, stores)),
        Duty(name="inboxes", every_s=slow, perform=inboxes),
        Duty(name="workers", every_s=slow, perform=partial(sweep.forget_silent_workers, stores)),
        Duty(name="orphans", every_s=rare, perform=partial(sweep.remove_orphans, stores)),
        Duty(
            name="webhooks", every_s=max(options.interval_s, 1.0), perform=partial(_follow_webhooks, stores, payloads)
        ),
        _figures(stores, options),
        Duty(name="checkpoint", every_s=slow, perform=partial(sweep.checkpoint, stores)),
    ]


async def _follow_webhooks(stores: Stores, payloads: Payloads) -> int:
    """Most have none, and do without all that belongs to them."""
    if not await stores.documents.list_documents(KIND) and not await stores.events.cursor(CURSOR):
        return 0
    from ade.governance.webhooks.following import follow

    return await follow(stores, payloads)


def _figures(stores: Stores, options: SweepOptions) -> Duty:
    if options.figures is None:
        return Duty(name="figures", every_s=max(options.interval_s, 3_600.0), perform=partial(stand_aside, stores))
    keeper = FigureKeeper(stores, options.figures)
    return Duty(name="figures", every_s=max(options.interval_s, 1.0), perform=keeper.keep)
