"""Read, decide, commit; and when somebody was faster, read again and decide again."""

from collections.abc import Awaitable, Callable

from ade.core.change import Change
from ade.core.errors import StaleWrite, UnknownTask
from ade.core.lifecycle import CLAIMABLE, Status
from ade.core.records import Task
from ade.ports import DONE, STOP, WORK, Stores

_TRIES = 10


async def get(stores: Stores, task_id: str) -> Task:
    """The task as it is now. Raises UnknownTask."""
    [task] = await stores.tasks.get([task_id])
    if task is None:
        raise unknown(task_id)
    return task


def unknown(task_id: str) -> UnknownTask:
    return UnknownTask(f"no task with the id {task_id[:60]!r} exists; it may have been pruned")


async def decide(
    stores: Stores,
    task_id: str,
    decision: Callable[[Task, int], Change | None],
    *,
    tries: int = _TRIES,
    before: Callable[[Change], Awaitable[None]] | None = None,
) -> Task:
    """Carry out a decision on the newest version of the task. A decision of None leaves it as it is.

    `before` is awaited for each change that is tried, just before it is written.
    """
    for tries_left in reversed(range(tries)):
        task = await get(stores, task_id)
        change = decision(task, stores.clock.now())
        if change is None:
            return task
        if before is not None:
            await before(change)
        try:
            await stores.tasks.commit(change)
        except StaleWrite:
            if not tries_left:
                raise
        else:
            ring_for(stores, change)
            return change.after
    raise AssertionError("unreachable: the last try returns or raises")


def ring_for(stores: Stores, *changes: Change) -> None:
    """Wake those who wait for what these changes did."""
    stopped = any(change.before.status is Status.RUNNING for change in changes)
    if any(change.after.is_final for change in changes):
        stores.hints.ring(DONE)
    if stopped:
        stores.hints.ring(STOP)
    if stopped or any(change.after.status in CLAIMABLE for change in changes):  # a stopped run may free a limit
        stores.hints.ring(WORK)
