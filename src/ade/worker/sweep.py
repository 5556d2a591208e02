"""The duties done on a timer. Each is a function that may run anywhere, any time, twice at once: guards decide."""

from collections.abc import Sequence

from ade.core.change import Change
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.core.task import lose_lease, miss_deadline
from ade.logs import Log
from ade.ports import DONE, STOP, WORK, Stores, TaskQuery
from ade.queue.dependents import settle_broken
from ade.queue.payloads import Payloads
from ade.queue.recalls import leave_lines, recall_called
from ade.worker.handed_in import HandedIn, settle_handed_in
from ade.worker.undoing import prepare_rollbacks

LIMIT = 200
ORPHAN_AGE_MS = 3_600_000  # a payload is written a moment before its record
log = Log("ade.sweep")


async def settle_ripe(stores: Stores, limit: int = LIMIT, payloads: Payloads | None = None) -> int:
    """Whatever waits for a decision: outcomes handed in, lost leases, missed deadlines, broken dependencies.

    Answers how many.
    """
    ripe = await stores.sweeps.ripe(limit)
    settled = await finish_handed_in(stores, payloads or Payloads(stores.blobs), ripe.handed_in)
    settled += await stall_lost(stores, ripe.expired, payloads)
    settled += await fail_overdue(stores, ripe.overdue, payloads)
    if ripe.broken or settled:  # what failed just now may break others
        settled += await settle_broken(stores, limit)
    return settled


async def finish_handed_in(stores: Stores, payloads: Payloads, ended: Sequence[HandedIn]) -> int:
    """Decide on runs whose workers only say how they ended."""
    written = await settle_handed_in(stores, payloads, ended)
    _wake(stores, written)
    return len(written)


async def stall_lost(stores: Stores, tasks: Sequence[Task], payloads: Payloads | None = None) -> int:
    """Give tasks whose worker went silent to others, or bury them. A worker that renews meanwhile keeps its task."""
    now = stores.clock.now()
    changes = [lose_lease(task, now=now) for task in tasks]
    await prepare_rollbacks(stores, payloads or Payloads(stores.blobs), changes)
    written = await _commit(stores, changes)
    for change in written:
        task = change.before
        log.warning(
            "task.worker_lost", task_id=task.id, attempt=task.attempt, worker=task.worker_id, status=change.after.status
        )
    await leave_lines(stores, (change.before for change in written))
    if written:
        stores.hints.ring(STOP)  # should the worker live after all, let it hear so
    return len(written)


async def fail_overdue(stores: Stores, tasks: Sequence[Task], payloads: Payloads | None = None) -> int:
    """Fail what nobody needs any more because its deadline passed before it ran, or before it ran again."""
    now = stores.clock.now()
    changes = [miss_deadline(task, now=now) for task in tasks]
    await prepare_rollbacks(stores, payloads or Payloads(stores.blobs), changes)
    written = await _commit(stores, changes)
    await leave_lines(stores, (change.before for change in written))
    return len(written)


async def serve_locks(stores: Stores, limit: int = LIMIT) -> int:
    """Remove holders and waiters whose time is over, and recall the tasks that were let in. Answers how many."""
    return await stores.locks.bury(limit) + await recall_called(stores, limit)


async def tend_reviews(stores: Stores, payloads: Payloads) -> int:
    """What time does to tasks that wait for people. Answers how many went on."""
    waiting = TaskQuery(statuses=frozenset({Status.SUBMITTED, Status.REVIEWING, Status.APPROVED}), limit=1)
    if not (await stores.tasks.find(waiting)).tasks:
        return 0  # most stores have none, and need not know the rules
    from ade.governance.approvals.tending import tend_reviews

    return await tend_reviews(stores, payloads)


async def forget_silent_workers(stores: Stores) -> int:
    """Take workers that are long gone off the list."""
    return len(await stores.workers.forget_silent())


async def expire_results(stores: Stores, limit: int = 1_000) -> int:
    """Forget results that outlived their result_ttl."""
    return await stores.sweeps.expire_results(limit)


async def trim_events(stores: Stores, *, retention_s: float, limit: int = 5_000) -> int:
    """Remove old events that every reader has passed, of tasks that are gone."""
    return await stores.events.trim(stores.clock.now() - round(retention_s * 1000), limit)


async def prune_effects(stores: Stores, *, retention_s: float, limit: int = 1_000) -> int:
    """Forget side effects that were done long ago."""
    return await stores.effects.prune_effects(stores.clock.now() - round(retention_s * 1000), limit)


async def expire_documents(stores: Stores, limit: int = 1_000) -> int:
    """Remove sessions, tokens and other documents whose time is over, and rates nobody needs any more."""
    return await stores.documents.expire_documents(limit)


async def forget_inboxes(stores: Stores, *, retention_s: float, limit: int = 1_000) -> int:
    """Forget inboxes that have been empty and untouched for long."""
    return await stores.inboxes.forget_empty(stores.clock.now() - round(retention_s * 1000), limit)


async def remove_orphans(stores: Stores, limit: int = 1_000) -> int:
    """Remove large payloads whose tasks never came to be or are gone."""
    removed = await stores.sweeps.remove_orphans(ORPHAN_AGE_MS, limit)
    if removed:
        log.info("blobs.orphans_removed", count=removed)
    return removed


async def checkpoint(stores: Stores) -> int:
    """Keep the store's files within their bounds."""
    await stores.upkeep.checkpoint()
    return 0


async def _commit(stores: Stores, changes: Sequence[Change]) -> list[Change]:
    """Write those decisions that still hold; answer them, and wake whom they concern."""
    if not changes:
        return []
    answers = await stores.tasks.commit_each(changes)
    written = [change for change, answer in zip(changes, answers, strict=True) if answer is None]
    _wake(stores, written)
    return written


def _wake(stores: Stores, written: Sequence[Change]) -> None:
    if any(change.after.is_final for change in written):
        stores.hints.ring(DONE)
    if any(change.after.status is Status.STALLED or change.before.status is Status.RUNNING for change in written):
        stores.hints.ring(WORK)
