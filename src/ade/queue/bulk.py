"""The same for many tasks that a query finds: bounded, and safe to repeat, because whatever is done fits no more."""

from collections.abc import Callable
from enum import StrEnum, auto

from msgspec import Struct, structs

from ade.core.change import Change
from ade.core.errors import InvalidTask
from ade.core.lifecycle import RULES, Status, Verb
from ade.core.records import Task
from ade.core.task import discard, replay
from ade.ports import Stores, TaskQuery
from ade.queue.decisions import ring_for

MOST_COUNTED = 10_000
_PAGE, _BATCH = 1_000, 200


class Action(StrEnum):
    CANCEL = auto()
    RETRY = auto()
    DISCARD = auto()


class Reach(Struct, frozen=True, kw_only=True):
    """How many tasks an action would reach, children of cancelled ones not counted."""

    count: int
    is_more: bool = False  # counting stopped there


class Reached(Struct, frozen=True, kw_only=True):
    changed: tuple[str, ...]  # ids, oldest first
    moved_on: tuple[str, ...] = ()  # those that somebody else was faster with
    is_more: bool = False  # others may fit: repeat it


def reach_of(action: Action, query: TaskQuery) -> TaskQuery | None:
    """Those of the query that the action can be done to, oldest first: who waits for another comes after it. None if
    there can be none."""
    if action is Action.CANCEL:
        possible = RULES[Verb.CANCEL].sources
        statuses = query.statuses & possible if query.statuses else possible
        return structs.replace(query, statuses=statuses, oldest_first=True) if statuses else None
    is_possible = not query.statuses or Status.FAILED in query.statuses
    if not is_possible or (action is Action.DISCARD and query.discarded):
        return None
    return structs.replace(
        query, statuses=frozenset({Status.FAILED}), discarded=bool(query.discarded), oldest_first=True
    )


async def count(stores: Stores, action: Action, query: TaskQuery) -> Reach:
    wanted = reach_of(action, query)
    found = 0
    while wanted is not None and found < MOST_COUNTED:
        page = await stores.tasks.find(structs.replace(wanted, limit=_PAGE))
        found += len(page.tasks)
        wanted = None if page.next is None else structs.replace(wanted, after=page.next)
    return Reach(count=found, is_more=wanted is not None)


async def act(
    stores: Stores, action: Action, query: TaskQuery, *, reason: str | None, limit: int, actor: str | None
) -> Reached:
    """Raises InvalidTask where the reason is missing."""
    if action is Action.DISCARD and not (reason or "").strip():
        raise InvalidTask("say why the tasks are discarded; the reason is kept on record")
    wanted = reach_of(action, query)
    if wanted is None:
        return Reached(changed=())
    page = await stores.tasks.find(structs.replace(wanted, limit=limit))
    is_more = page.next is not None
    if action is Action.CANCEL:
        from ade.queue.cancelling import cancel_many  # who lists dead letters needs no event loop

        ids = [task.id for task in page.tasks]
        changed = [task_id async for batch in cancel_many(stores, ids, reason, actor=actor) for task_id in batch]
        done = frozenset(changed)
        moved_on = tuple(task_id for task_id in ids if task_id not in done)
        return Reached(changed=tuple(changed), moved_on=moved_on, is_more=is_more)

    def decision(task: Task, now: int) -> Change:
        if action is Action.RETRY:
            return replay(task, now=now, actor=actor)
        return discard(task, reason or "", now=now, actor=actor)

    return await _change(stores, page.tasks, decision, is_more=is_more)


async def _change(
    stores: Stores, tasks: list[Task], decision: Callable[[Task, int], Change], *, is_more: bool
) -> Reached:
    changed, moved_on = list[str](), list[str]()
    for start in range(0, len(tasks), _BATCH):
        changes = [decision(task, stores.clock.now()) for task in tasks[start : start + _BATCH]]
        answers = await stores.tasks.commit_each(changes)
        for change, stale in zip(changes, answers, strict=True):
            (changed if stale is None else moved_on).append(change.task_id)
        ring_for(stores, *(change for change, stale in zip(changes, answers, strict=True) if stale is None))
    return Reached(changed=tuple(changed), moved_on=tuple(moved_on), is_more=is_more)
