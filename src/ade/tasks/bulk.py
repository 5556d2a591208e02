"""Cancel, retry, or discard all tasks that match a query, in bounded batches.

An action is safe to repeat: a task that it has changed no longer matches. One call examines no more tasks than the
budget of its query; the next one continues behind them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from enum import StrEnum, auto
from functools import partial
from itertools import groupby, islice

from msgspec import Struct, structs

from ade.approvals.errors import TooManyApprovals
from ade.errors import AdeError, IllegalTransition, InvalidTask, StaleWrite, StoreError, UnknownTask
from ade.stores.ports import Stores, TaskPage, TaskQuery
from ade.tasks.changes import Change
from ade.tasks.decisions import cancel, check_removable, discard, replay
from ade.tasks.enqueue import fresh_id
from ade.tasks.lifecycle import FINAL, RULES, Status, Verb
from ade.tasks.model import Task
from ade.tasks.service import cancel_lock_waits, notify_for, settle_broken

MOST_COUNTED = 10_000
_PAGE, _BATCH = 1_000, 200
_LEAST_COST = 500  # of a read, in tasks of the budget, so that a call has few of them, however small
_MOST_IDS = 100


ReplayOne = Callable[[str], Awaitable[object]]  # `approvals.submission.replay`, which refuses what must not run again


class BulkActionKind(StrEnum):
    """What a bulk action does to each task."""

    CANCEL = auto()
    RETRY = auto()
    DISCARD = auto()


class BulkPreview(Struct, frozen=True, kw_only=True):
    """How many tasks an action would reach, children of cancelled ones not counted."""

    count: int
    is_more: bool = False  # counting stopped there
    is_partial: bool | None = None  # absent unless as many tasks were examined as one call may
    next: str | None = None  # the cursor of the next call; absent if all tasks were examined


class BulkRefusal(Struct, frozen=True, kw_only=True):
    """Tasks that a bulk action left unchanged, for the same reason as if each had been requested alone."""

    code: str  # of the error
    reason: str
    count: int
    task_ids: tuple[str, ...]  # the first 100, oldest first


class BulkReport(Struct, frozen=True, kw_only=True):
    """The result of a bulk action: changed tasks, tasks that had already changed state, and refused ones."""

    changed: tuple[str, ...]  # ids, oldest first
    moved_on: tuple[str, ...] = ()  # tasks that another caller changed first
    refused: tuple[BulkRefusal, ...] = ()  # such as `too_many_approvals`; these tasks are unchanged
    is_more: bool = False  # others may fit: repeat it
    is_partial: bool | None = None  # absent unless as many tasks were examined as one call may
    next: str | None = None  # the cursor of the next call, which continues there; absent if all tasks were examined

    @property
    def reached(self) -> int:
        """How many tasks it changed, or would have changed."""
        return len(self.changed) + len(self.moved_on)


def refusal(task_id: str, error: AdeError) -> BulkRefusal:
    """Return why one task was refused."""
    return BulkRefusal(code=error.code, reason=error.detail, count=1, task_ids=(task_id,))


def combined(reports: Iterable[BulkReport], *, is_more: bool = False) -> BulkReport:
    """Return one report of several. Tasks that were refused for the same reason are counted together."""
    known = list(reports)
    refused: dict[tuple[str, str], BulkRefusal] = {}
    for each in (each for report in known for each in report.refused):
        before = refused.get((each.code, each.reason))
        if before is not None:
            ids = (*before.task_ids, *each.task_ids)[:_MOST_IDS]
            each = structs.replace(each, count=before.count + each.count, task_ids=ids)
        refused[each.code, each.reason] = each
    return BulkReport(
        changed=tuple(task_id for report in known for task_id in report.changed),
        moved_on=tuple(task_id for report in known for task_id in report.moved_on),
        refused=tuple(refused.values()),
        is_more=is_more,
    )


def reach_of(action: BulkActionKind, query: TaskQuery) -> TaskQuery | None:
    """Narrow the query to the tasks that the action applies to; None if there can be none.

    Oldest first, so that a task comes after its dependencies.
    """
    if action is BulkActionKind.CANCEL:
        possible = RULES[Verb.CANCEL].sources
        statuses = query.statuses & possible if query.statuses else possible
        return structs.replace(query, statuses=statuses, oldest_first=True) if statuses else None
    is_possible = not query.statuses or Status.FAILED in query.statuses
    if not is_possible or (action is BulkActionKind.DISCARD and query.discarded):
        return None
    return structs.replace(
        query, statuses=frozenset({Status.FAILED}), discarded=bool(query.discarded), oldest_first=True
    )


async def count(stores: Stores, action: BulkActionKind, query: TaskQuery) -> tuple[BulkPreview, int | None]:
    """Count the tasks that the action would change, up to MOST_COUNTED. Also returns the position at which it stopped;
    None if it has examined all tasks."""
    wanted, budget = reach_of(action, query), query.budget
    found = 0
    while wanted is not None and found < MOST_COUNTED and (budget is None or budget > 0):
        page = await stores.tasks.find(structs.replace(wanted, limit=_PAGE, budget=budget))
        found += len(page.tasks if action is BulkActionKind.RETRY else _removable(page.tasks)[0])
        budget = _spent(budget, page)
        wanted = None if page.next is None else structs.replace(wanted, after=page.next)
    is_partial = wanted is not None and found < MOST_COUNTED
    preview = BulkPreview(count=found, is_more=wanted is not None, is_partial=is_partial or None)
    return preview, None if wanted is None else wanted.after


async def act(
    stores: Stores,
    action: BulkActionKind,
    query: TaskQuery,
    *,
    reason: str | None,
    limit: int,
    actor: str | None,
    replay_one: ReplayOne,
) -> tuple[BulkReport, int | None]:
    """Run the action on up to `limit` matching tasks, not counting those that it refuses. Also returns the position
    from which the next call continues; None at the end. Raises InvalidTask if a reason is required and missing."""
    if action is BulkActionKind.DISCARD and not (reason or "").strip():
        raise InvalidTask("give a reason for discarding the tasks; it is stored with them")
    wanted = reach_of(action, query)
    if wanted is None:
        return BulkReport(changed=()), None

    async def some(tasks: Sequence[Task]) -> BulkReport:
        if action is BulkActionKind.CANCEL:
            return await _cancel_some(stores, tasks, reason, actor=actor)
        if action is BulkActionKind.RETRY:
            return await replay_some(stores, tasks, replay_one, actor=actor)
        return await discard_some(stores, tasks, reason or "", actor=actor)

    return await change_matching(stores, wanted, some, limit=limit)


async def change_matching(
    stores: Stores,
    query: TaskQuery,
    some: Callable[[Sequence[Task]], Awaitable[BulkReport]],
    *,
    limit: int | None = None,
    fits: Callable[[Task], bool] | None = None,
) -> tuple[BulkReport, int | None]:
    """Apply `some` to the tasks that match the query and `fits`, until it has changed `limit` of them, or the budget of
    the query is used up. Also returns the position from which the next call continues; None at the end.
    """
    reports: list[BulkReport] = []
    wanted, budget, left = query, query.budget, limit
    while (left is None or left > 0) and (budget is None or budget > 0):
        page = await _page_of(stores, structs.replace(wanted, budget=budget), left, fits)
        chosen = page.tasks if fits is None else [task for task in page.tasks if fits(task)]
        reports += [await some(chosen[start : start + _BATCH]) for start in range(0, len(chosen), _BATCH)]
        if limit is not None:
            left = limit - sum(report.reached for report in reports)
        budget = _spent(budget, page)
        if page.next is None:
            return combined(reports), None
        wanted = structs.replace(wanted, after=page.next)
    done = combined(reports, is_more=any(report.reached for report in reports))
    return structs.replace(done, is_partial=left is None or left > 0 or None), wanted.after


async def _page_of(stores: Stores, query: TaskQuery, left: int | None, fits: Callable[[Task], bool] | None) -> TaskPage:
    """Return a page with at most `left` tasks that fit. It is cut by another read, whose end is an exact position."""
    if fits is None:
        return await stores.tasks.find(structs.replace(query, limit=_PAGE if left is None else min(left, _PAGE)))
    size = _BATCH
    while True:
        page = await stores.tasks.find(structs.replace(query, limit=size))
        places = [place for place, task in enumerate(page.tasks, start=1) if fits(task)]
        if left is None or len(places) <= left:
            return page
        size = places[left - 1]


def _spent(budget: int | None, page: TaskPage) -> int | None:
    """Return what is left of the budget."""
    return None if budget is None else budget - max(page.examined, len(page.tasks), _LEAST_COST)


async def replay_some(stores: Stores, tasks: Sequence[Task], replay_one: ReplayOne, *, actor: str | None) -> BulkReport:
    """Replay failed tasks, each of them as if it were replayed alone. Those that this refuses are unchanged."""
    reports: list[BulkReport] = []
    for is_governed, some in groupby(tasks, lambda task: task.review is not None and task.review.is_governed):
        if is_governed:
            reports.append(await _replay_governed(list(some), replay_one))
        else:
            again = partial(_replayed, actor=actor)
            reports.append(await _change(stores, list(some), again))
    return combined(reports)


async def _replay_governed(tasks: Sequence[Task], replay_one: ReplayOne) -> BulkReport:
    reports: list[BulkReport] = []
    full: dict[str | None, TooManyApprovals] = {}  # authors; to find out once is enough
    for task in tasks:
        try:
            if task.author_id in full:
                raise full[task.author_id]
            await replay_one(task.id)
        except (IllegalTransition, StaleWrite, UnknownTask):
            reports.append(BulkReport(changed=(), moved_on=(task.id,)))
        except StoreError:
            raise
        except AdeError as error:
            if isinstance(error, TooManyApprovals):
                full[task.author_id] = error
            reports.append(BulkReport(changed=(), refused=(refusal(task.id, error),)))
        else:
            reports.append(BulkReport(changed=(task.id,)))
    return combined(reports)


def _replayed(task: Task, now: int, *, actor: str | None) -> Change:
    return replay(task, now=now, preview_id=fresh_id(now), actor=actor)


async def discard_some(stores: Stores, tasks: Sequence[Task], reason: str, *, actor: str | None) -> BulkReport:
    """Discard failed tasks, and record the reason. Deliveries of notifications are refused."""
    removable, refused = _removable(tasks)
    done = await _change(stores, removable, lambda task, now: discard(task, reason, now=now, actor=actor))
    return combined([done, refused])


def _removable(tasks: Sequence[Task]) -> tuple[list[Task], BulkReport]:
    """Return the tasks that callers may cancel and discard, and the refusal of the others."""
    removable, refused = list[Task](), list[BulkReport]()
    for task in tasks:
        try:
            check_removable(task)
        except InvalidTask as error:
            refused.append(BulkReport(changed=(), refused=(refusal(task.id, error),)))
        else:
            removable.append(task)
    return removable, combined(refused)


async def _change(stores: Stores, tasks: Sequence[Task], decision: Callable[[Task, int], Change]) -> BulkReport:
    changes = [decision(task, stores.clock.now()) for task in tasks]
    answers = await stores.tasks.commit_each(changes)
    written = [change for change, stale in zip(changes, answers, strict=True) if stale is None]
    notify_for(stores, *written)
    return BulkReport(
        changed=tuple(change.task_id for change in written),
        moved_on=tuple(change.task_id for change, stale in zip(changes, answers, strict=True) if stale is not None),
    )


# Cancel many tasks in few writes, with their unfinished children and the tasks that depend on them.


_BATCH_CANCELLING = 200
_TRIES = 10
_CANCELLABLE = RULES[Verb.CANCEL].sources
_UNFINISHED = frozenset(Status) - FINAL


async def _cancel_some(stores: Stores, tasks: Sequence[Task], reason: str | None, *, actor: str | None) -> BulkReport:
    removable, refused = _removable(tasks)
    ids = [task.id for task in removable]
    changed = [task_id async for batch in cancel_many(stores, ids, reason, actor=actor) for task_id in batch]
    done = frozenset(changed)
    moved_on = tuple(task_id for task_id in ids if task_id not in done)
    return combined([BulkReport(changed=tuple(changed), moved_on=moved_on), refused])


async def cancel_many(
    stores: Stores, task_ids: Iterable[str], reason: str | None = None, *, actor: str | None = None
) -> AsyncIterator[list[str]]:
    """Cancel the tasks that are still unfinished, and yield the cancelled IDs of each batch."""
    remaining = iter(task_ids)
    while batch := list(islice(remaining, _BATCH_CANCELLING)):
        cancelled = await _cancel(stores, batch, reason, actor)
        parents = cancelled
        while parents:
            children, unread = await _children(stores, parents)
            parents = unread + await _cancel(stores, children, "its parent was cancelled", actor)
        yield cancelled
    await settle_broken(stores)


async def _cancel(stores: Stores, task_ids: Sequence[str], reason: str | None, actor: str | None) -> list[str]:
    """Cancel all in one write. Tasks that changed in the meantime are read again."""
    cancelled: list[str] = []
    for _ in range(_TRIES):
        if not task_ids:
            break
        tasks = [task for task in await stores.tasks.get(task_ids) if task is not None and task.status in _CANCELLABLE]
        removable, _ = _removable(tasks)
        changes = [cancel(task, reason, now=stores.clock.now(), actor=actor) for task in removable]
        answers = await stores.tasks.commit_each(changes)
        written = [change for change, stale in zip(changes, answers, strict=True) if stale is None]
        notify_for(stores, *written)
        await cancel_lock_waits(stores, (change.after for change in written))
        cancelled += [change.task_id for change in written]
        task_ids = [change.task_id for change, stale in zip(changes, answers, strict=True) if stale is not None]
    return cancelled


async def _children(stores: Stores, parent_ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return unfinished children of these tasks, and the parents that have more of them."""
    queries = (
        TaskQuery(parent_id=parent_id, statuses=_UNFINISHED, limit=_BATCH_CANCELLING) for parent_id in parent_ids
    )
    pages = await asyncio.gather(*(stores.tasks.find(query) for query in queries))
    unread = [parent_id for parent_id, page in zip(parent_ids, pages, strict=True) if page.next is not None]
    return [child.id for page in pages for child in page.tasks], unread
