"""Tasks come in: admit, check for rings, move large arguments out of the record, store, wake a worker."""

from collections.abc import Awaitable, Sequence

from msgspec import structs

from ade.core.admission import check_no_cycle
from ade.core.errors import AdeError, DiskFull, InvalidTask, StoreError
from ade.core.records import Task
from ade.core.task import admit
from ade.ports import Stores
from ade.queue.payloads import Payloads

MOST_TOGETHER = 50_000  # tasks in one call: they are written in one transaction, for which everybody else waits


async def enqueue(stores: Stores, payloads: Payloads, tasks: Sequence[Task]) -> list[Task]:
    """Check and store new tasks, all or none; the earlier task where an idempotency key was used before."""
    now = stores.clock.now()
    return await keep(stores, payloads, [admit(task, now=now) for task in tasks])


async def keep(stores: Stores, payloads: Payloads, admitted: Sequence[Task]) -> list[Task]:
    """Store tasks that were admitted already; the store wakes a worker."""
    check_rings(admitted)
    return await store(stores, payloads, admitted)


def store(stores: Stores, payloads: Payloads, admitted: Sequence[Task]) -> Awaitable[list[Task]]:
    """Store tasks that were checked for rings."""
    if len(admitted) > MOST_TOGETHER:
        raise InvalidTask(f"{len(admitted)} tasks in one call are too many; give at most {MOST_TOGETHER} at a time")
    for task in admitted:
        if not payloads.fits(task.args):
            return _store_spilled(stores, payloads, admitted)
    return stores.tasks.add(admitted)


def store_blocking(stores: Stores, payloads: Payloads, admitted: Sequence[Task]) -> list[Task] | None:
    """The same as `keep` without an event loop. None: not this way; then the very same tasks must be given to `store`.

    That is so for large arguments, for very many tasks, and while servers are away.
    """
    check_rings(admitted)
    if stores.blocking is None or len(admitted) > MOST_TOGETHER:
        return None
    for task in admitted:
        if not payloads.fits(task.args):
            return None
    return stores.blocking.add(admitted)


def check_rings(admitted: Sequence[Task]) -> None:
    """Raises DependencyCycle."""
    for task in admitted:
        if task.depends_on:
            check_no_cycle(admitted)
            return


async def _store_spilled(stores: Stores, payloads: Payloads, admitted: Sequence[Task]) -> list[Task]:
    """Large arguments are kept before the records that name them; what no record names is removed again."""
    own = {task.id for task in admitted}
    try:
        spilled = [await _spilled(payloads, task) for task in admitted]
    except AdeError:
        await stores.blobs.remove_blobs(sorted(own))
        raise
    try:
        stored = await stores.tasks.add(spilled)
    except AdeError as error:
        # Other errors of the store tell nothing about the write: perhaps the tasks were stored all the same, so the
        # blobs stay; as they do when the caller is cancelled.
        if isinstance(error, DiskFull) or not isinstance(error, StoreError):
            await stores.blobs.remove_blobs(sorted(own))
        raise
    await stores.blobs.remove_blobs(sorted(own - {task.id for task in stored}))
    return stored


async def _spilled(payloads: Payloads, task: Task) -> Task:
    if payloads.is_kept(task.id, task.args):  # the guard had to keep it first
        return task
    return structs.replace(task, args=await payloads.spill(task.id, "args", task.args))
