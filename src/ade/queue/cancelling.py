"""Cancel many tasks in few writes, with their unfinished children and whatever waits for them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice

from ade.core.lifecycle import FINAL, RULES, Status, Verb
from ade.core.task import cancel
from ade.ports import Stores, TaskQuery
from ade.queue.decisions import ring_for
from ade.queue.dependents import settle_broken
from ade.queue.recalls import leave_lines

_BATCH = 200
_TRIES = 10
_CANCELLABLE = RULES[Verb.CANCEL].sources
_UNFINISHED = frozenset(Status) - FINAL


async def cancel_many(
    stores: Stores, task_ids: Iterable[str], reason: str | None = None, *, actor: str | None = None
) -> AsyncIterator[list[str]]:
    """Cancel those that are unfinished when their turn comes; yields the ids of each batch that was cancelled."""
    remaining = iter(task_ids)
    while batch := list(islice(remaining, _BATCH)):
        cancelled = await _cancel(stores, batch, reason, actor)
        parents = cancelled
        while parents:
            children, unread = await _children(stores, parents)
            parents = unread + await _cancel(stores, children, "its parent was cancelled", actor)
        yield cancelled
    await settle_broken(stores)


async def _cancel(stores: Stores, task_ids: Sequence[str], reason: str | None, actor: str | None) -> list[str]:
    """All in one write; those that somebody changed meanwhile are looked at again."""
    cancelled: list[str] = []
    for _ in range(_TRIES):
        if not task_ids:
            break
        tasks = [task for task in await stores.tasks.get(task_ids) if task is not None and task.status in _CANCELLABLE]
        changes = [cancel(task, reason, now=stores.clock.now(), actor=actor) for task in tasks]
        answers = await stores.tasks.commit_each(changes)
        written = [change for change, stale in zip(changes, answers, strict=True) if stale is None]
        ring_for(stores, *written)
        await leave_lines(stores, (change.after for change in written))
        cancelled += [change.task_id for change in written]
        task_ids = [change.task_id for change, stale in zip(changes, answers, strict=True) if stale is not None]
    return cancelled


async def _children(stores: Stores, parent_ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Unfinished children of these, and which of these have more of them."""
    queries = (TaskQuery(parent_id=parent_id, statuses=_UNFINISHED, limit=_BATCH) for parent_id in parent_ids)
    pages = await asyncio.gather(*(stores.tasks.find(query) for query in queries))
    unread = [parent_id for parent_id, page in zip(parent_ids, pages, strict=True) if page.next is not None]
    return [child.id for page in pages for child in page.tasks], unread
