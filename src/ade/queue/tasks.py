"""What can be done with one task after it was enqueued."""

import os
from collections.abc import Callable

from msgspec import Raw

from ade.core import task as decisions
from ade.core.change import Change
from ade.core.errors import IllegalTransition, StoreCorrupt
from ade.core.lifecycle import FINAL, Status
from ade.core.records import Task
from ade.ports import Stores, TaskQuery
from ade.queue.decisions import decide, get
from ade.queue.dependents import settle_broken
from ade.queue.payloads import Payloads
from ade.queue.recalls import leave_lines

__all__ = ["cancel", "discard", "edit", "get", "replay"]

Check = Callable[[Task], object]  # of the newest record, before anything is decided on it: raises if it is not meant
_UNFINISHED = frozenset(Status) - FINAL
_PAGE = 200


def any_version(task: Task) -> None: ...


async def cancel(
    stores: Stores,
    task_id: str,
    reason: str | None = None,
    *,
    actor: str | None = None,
    check: Check = any_version,
) -> Task:
    """Stop a task, its unfinished children and whatever waits for them. Cancelling twice is no error.

    Raises IllegalTransition for a task that ended in another way.
    """

    def decision(task: Task, now: int) -> Change | None:
        if task.status is Status.CANCELLED:
            return None
        check(task)
        return decisions.cancel(task, reason, now=now, actor=actor)

    cancelled = await decide(stores, task_id, decision)
    await leave_lines(stores, [cancelled])
    await _cancel_children(stores, cancelled, actor)
    await settle_broken(stores)
    return cancelled


async def _cancel_children(stores: Stores, parent: Task, actor: str | None) -> None:
    parents = [parent.id]
    while parents:
        parent_id = parents.pop()
        page = await stores.tasks.find(TaskQuery(parent_id=parent_id, statuses=_UNFINISHED, limit=_PAGE))
        for child in page.tasks:
            try:
                cancelled = await decide(
                    stores,
                    child.id,
                    lambda task, now: decisions.cancel(task, "its parent was cancelled", now=now, actor=actor),
                )
            except IllegalTransition:
                continue  # it finished meanwhile
            await leave_lines(stores, [cancelled])
            parents.append(child.id)
        if page.next is not None:
            parents.append(parent_id)


async def replay(
    stores: Stores,
    payloads: Payloads,
    task_id: str,
    *,
    args: Raw | None = None,
    actor: str | None = None,
    check: Check = any_version,
) -> Task:
    """Run a failed task again with fresh attempts, perhaps with corrected arguments."""
    if args is not None:
        args = await payloads.spill(task_id, _fresh_kind(), args)

    def decision(task: Task, now: int) -> Change:
        check(task)
        return decisions.replay(task, now=now, actor=actor, args=args)

    return await decide(stores, task_id, decision)


async def discard(
    stores: Stores, task_id: str, reason: str, *, actor: str | None = None, check: Check = any_version
) -> Task:
    """Take a failed task off the dead letters, with the reason on record."""

    def decision(task: Task, now: int) -> Change:
        check(task)
        return decisions.discard(task, reason, now=now, actor=actor)

    return await decide(stores, task_id, decision)


async def result_of(stores: Stores, payloads: Payloads, task: Task) -> Raw | None:
    """The result of a task that has ended; None if it is expired, be it only since the record was read."""
    if task.result is None:
        return None
    try:
        return await payloads.load(task.result)
    except StoreCorrupt:
        if (await get(stores, task.id)).result_expired:
            return None
        raise


async def edit(
    stores: Stores,
    payloads: Payloads,
    task_id: str,
    *,
    actor: str | None = None,
    check: Check = any_version,
    **fields: object,
) -> Task:
    """Change a draft; checked like a new task."""
    args = fields.get("args")
    if isinstance(args, Raw):
        fields["args"] = await payloads.spill(task_id, _fresh_kind(), args)

    def decision(task: Task, now: int) -> Change:
        check(task)
        return decisions.edit(task, now=now, actor=actor, **fields)

    return await decide(stores, task_id, decision)


def _fresh_kind() -> str:
    """A name nobody else writes to: of two edits at once the one that is refused must not touch the other's blob."""
    return f"{os.urandom(4).hex()}.args"
