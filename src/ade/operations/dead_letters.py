"""Dead letters: failed tasks nobody has dealt with yet, one by one or by what went wrong."""

from functools import partial

from msgspec import structs

from ade.core.errors import InvalidFilter
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.core.web.forms.tasks import (
    DeadLetters,
    Discard,
    DiscardDeadLetters,
    ListDeadLetterGroups,
    ListDeadLetters,
    Retry,
)
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import cut, page, position
from ade.operations.task_access import is_meant, owned
from ade.operations.task_changes import replayed
from ade.operations.task_finding import LARGEST_PAGE, find_some, size_of
from ade.ports import TaskQuery
from ade.queue import deadletters
from ade.queue import tasks as use_cases
from ade.queue.bulk import Reached
from ade.queue.deadletters import Group, Tried

_MOST_LOOKED_AT = 50_000  # by one request, newest first, or oldest first where something is done
_MOST_LOOKS = 20


async def list_dead_letters(office: Office, asked: Asked, query: ListDeadLetters) -> Page[Task]:
    """Newest first. With a fingerprint, or where they are large, a page may have less than its size, and go on all the
    same."""
    begin = position("dlq", query)
    wanted = TaskQuery(
        name=query.name,
        queue=query.queue,
        statuses=frozenset({Status.FAILED}),
        discarded=False,
        after=begin if isinstance(begin, int) else None,
    )
    items: list[Task] = []
    for _ in range(_MOST_LOOKS):
        found = await find_some(office, structs.replace(wanted, limit=query.limit - len(items)))
        wanted = structs.replace(wanted, after=found.next)
        items += [task for task in found.tasks if _is_of(task, query.fingerprint)]
        if found.next is None or len(items) == query.limit or size_of(items) > LARGEST_PAGE // 2:
            break
    return page("dlq", query, items, wanted.after)


def _is_of(task: Task, fingerprint: str | None) -> bool:
    return fingerprint is None or deadletters.fingerprint_of(task) == fingerprint


async def list_dead_letter_groups(office: Office, asked: Asked, query: ListDeadLetterGroups) -> Page[Group]:
    """The largest first, made of the newest 50,000 dead letters."""
    wanted = TaskQuery(name=query.name, queue=query.queue)
    return cut("dlq groups", query, await deadletters.groups(office.stores, wanted, most=_MOST_LOOKED_AT))


async def replay_dead_letters(office: Office, asked: Asked, body: DeadLetters) -> Reached:
    """Oldest first, so many in one call; while the answer says that there are more, it may be repeated."""
    tried = await deadletters.replay_all(
        office.stores,
        _query(body),
        same_as=body.fingerprint,
        limit=body.limit,
        actor=asked.actor,
        most=_MOST_LOOKED_AT,
    )
    return _reached(tried, body)


async def discard_dead_letters(office: Office, asked: Asked, body: DiscardDeadLetters) -> Reached:
    """The same: they stay on record with the reason."""
    tried = await deadletters.discard_all(
        office.stores,
        body.reason,
        _query(body),
        same_as=body.fingerprint,
        limit=body.limit,
        actor=asked.actor,
        most=_MOST_LOOKED_AT,
    )
    return _reached(tried, body)


def _query(body: DeadLetters) -> TaskQuery:
    is_named = any(each is not None for each in (body.fingerprint, body.name, body.queue))
    if is_named == body.everything:
        raise InvalidFilter("say which: a fingerprint, name or queue, or `everything`, but not both")
    return TaskQuery(name=body.name, queue=body.queue)


def _reached(tried: Tried, body: DeadLetters) -> Reached:
    """Raises UnknownFingerprint where there is nothing of the kind."""
    if body.fingerprint is not None and not tried.changed and not tried.moved_on:
        raise deadletters.unknown_fingerprint(body.fingerprint)
    is_more = len(tried.changed) >= body.limit
    return Reached(changed=tried.changed, moved_on=tried.moved_on, is_more=is_more)


async def replay_dead_letter(office: Office, asked: Asked, task_id: str, body: Retry) -> Task:
    """With the same arguments, or with corrected ones."""
    return await replayed(office, asked, await owned(office, asked, task_id), body.args)


async def discard_dead_letter(office: Office, asked: Asked, task_id: str, body: Discard) -> Task:
    await owned(office, asked, task_id)
    return await use_cases.discard(
        office.stores, task_id, body.reason, actor=asked.actor, check=partial(is_meant, asked)
    )
