"""HTTP operations on dead letters, and bulk actions on all tasks that match a filter."""

from msgspec import structs

from ade.accounts.model import Permission
from ade.errors import InvalidFilter
from ade.server.context import RequestContext, Services, cut, next_cursor, page, position, scope_of, writer
from ade.server.operation import ReadRule, operation
from ade.server.pagination import Page
from ade.stores.ports import TaskQuery
from ade.tasks import bulk, dead_letters
from ade.tasks import service as tasks_service
from ade.tasks.api.requests import (
    BulkAction,
    DeadLetters,
    Discard,
    DiscardDeadLetters,
    ListDeadLetterGroups,
    ListDeadLetters,
    RetryTask,
)
from ade.tasks.api.tasks import (
    BUDGET,
    LARGEST_PAGE,
    find_some,
    limited,
    owned_task,
    query_of,
    replay_of,
    replayed,
    size_of,
    version_check,
)
from ade.tasks.bulk import BulkActionKind, BulkPreview, BulkReport
from ade.tasks.dead_letters import DeadLetterGroup
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

_MOST_READ = 50_000  # by groups, newest first
_MOST_PAGES = 20
_BULK = "bulk action"


@operation("GET /dlq", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_dead_letters(services: Services, request: RequestContext, query: ListDeadLetters) -> Page[Task]:
    """Failed tasks that were not handled yet. Newest first. With a fingerprint, or where tasks are large, a page can be
    shorter than its limit and not the last."""
    begin = position("dlq", query)
    wanted = TaskQuery(
        name=query.name,
        queue=query.queue,
        statuses=frozenset({Status.FAILED}),
        discarded=False,
        after=begin if isinstance(begin, int) else None,
        budget=BUDGET,
    )
    items: list[Task] = []
    is_partial = False
    for _ in range(_MOST_PAGES):
        more = structs.replace(wanted, limit=query.limit - len(items))
        found = await find_some(services, more, scope_of(request.caller))
        wanted = structs.replace(wanted, after=found.next)
        items += [task for task in found.tasks if _is_of(task, query.fingerprint)]
        is_partial = found.is_partial
        if found.next is None or is_partial or len(items) == query.limit or size_of(items) > LARGEST_PAGE // 2:
            break
    return page("dlq", query, items, wanted.after, is_partial=is_partial)


def _is_of(task: Task, fingerprint: str | None) -> bool:
    return fingerprint is None or dead_letters.fingerprint_of(task) == fingerprint


@operation("GET /dlq/groups", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_dead_letter_groups(
    services: Services, request: RequestContext, query: ListDeadLetterGroups
) -> Page[DeadLetterGroup]:
    """Dead letters that are the same mistake. The largest first, computed from the newest 50,000 dead letters."""
    wanted = limited(TaskQuery(name=query.name, queue=query.queue, budget=BUDGET), scope_of(request.caller))
    found = [] if wanted is None else await dead_letters.groups(services.stores, wanted, most=_MOST_READ)
    return cut("dlq groups", query, found)


@operation("POST /dlq/replay", permission=Permission.OPERATE)
async def replay_dead_letters(services: Services, request: RequestContext, body: DeadLetters) -> BulkReport:
    """Replay a group of dead letters. Oldest first, up to a limit per call, of up to 20,000 examined tasks; repeat the
    call with `next` as `cursor` until it is absent. Each is judged as if it were replayed alone; those that are refused
    stay dead letters and are reported with the reason."""
    tried, following = await dead_letters.replay_all(
        services.stores,
        _query("dlq replay", body),
        same_as=body.fingerprint,
        limit=body.limit,
        actor=writer(request),
        replay_one=replay_of(services, request),
    )
    return _reached("dlq replay", tried, body, following)


@operation("POST /dlq/discard", permission=Permission.OPERATE)
async def discard_dead_letters(services: Services, request: RequestContext, body: DiscardDeadLetters) -> BulkReport:
    """Discard a group of dead letters. In the same order and number. They stay on record with the reason."""
    tried, following = await dead_letters.discard_all(
        services.stores,
        body.reason,
        _query("dlq discard", body),
        same_as=body.fingerprint,
        limit=body.limit,
        actor=writer(request),
    )
    return _reached("dlq discard", tried, body, following)


def _query(of_list: str, body: DeadLetters) -> TaskQuery:
    is_named = any(each is not None for each in (body.fingerprint, body.name, body.queue))
    if is_named == body.everything:
        raise InvalidFilter("name a fingerprint, name, or queue, or set `everything`, but not both")
    return TaskQuery(name=body.name, queue=body.queue, after=_after(of_list, body), budget=BUDGET)


def _after(of_list: str, body: DeadLetters | BulkAction) -> int | None:
    begin = position(of_list, body)
    return begin if isinstance(begin, int) else None


def _reached(of_list: str, tried: BulkReport, body: DeadLetters, following: int | None) -> BulkReport:
    """Raise UnknownFingerprint if no dead letter has the requested fingerprint."""
    is_all = following is None and body.cursor is None
    if body.fingerprint is not None and is_all and not tried.reached and not tried.refused:
        raise dead_letters.unknown_fingerprint(body.fingerprint)
    return structs.replace(tried, next=next_cursor(of_list, body, following))


@operation("POST /dlq/{task_id}/replay", permission=Permission.OPERATE)
async def replay_dead_letter(services: Services, request: RequestContext, task_id: str, body: RetryTask) -> Task:
    """Replay one, edited if need be. With the same arguments, or with corrected ones."""
    return await replayed(services, request, await owned_task(services, request, task_id), body.args)


@operation("POST /dlq/{task_id}/discard", permission=Permission.OPERATE)
async def discard_dead_letter(services: Services, request: RequestContext, task_id: str, body: Discard) -> Task:
    """Discard one."""
    await owned_task(services, request, task_id)
    return await tasks_service.discard(
        services.stores, task_id, body.reason, actor=writer(request), check=version_check(request)
    )


# Bulk actions on all tasks that match a filter.


@operation("POST /bulk-actions/preview", reads=ReadRule.ALL, permission=Permission.OPERATE, mutates=False)
async def preview_bulk_action(services: Services, request: RequestContext, body: BulkAction) -> BulkPreview:
    """How many tasks an action would reach. One call examines up to 20,000 tasks for filters without an index: then the
    count has `is_partial`, and a call with `next` as `cursor` counts the following ones."""
    counted, following = await bulk.count(services.stores, BulkActionKind(body.action), _query_bulk(body))
    return structs.replace(counted, next=next_cursor(_BULK, body, following))


@operation("POST /bulk-actions", permission=Permission.OPERATE)
async def run_bulk_action(services: Services, request: RequestContext, body: BulkAction) -> BulkReport:
    """Cancel, retry or discard all that a filter finds. Oldest first, up to a limit per call, of up to 20,000 examined
    tasks; repeat the call with `next` as `cursor` until it is absent. A retry that would be refused alone is refused
    here too, and reported."""
    done, following = await bulk.act(
        services.stores,
        BulkActionKind(body.action),
        _query_bulk(body),
        reason=body.reason,
        limit=body.limit,
        actor=writer(request),
        replay_one=replay_of(services, request),
    )
    return structs.replace(done, next=next_cursor(_BULK, body, following))


def _query_bulk(body: BulkAction) -> TaskQuery:
    query = query_of(body.filter)
    if query == TaskQuery():  # a forgotten filter must not cancel every task
        raise InvalidFilter("the filter has no conditions; add at least one")
    return structs.replace(query, after=_after(_BULK, body), budget=BUDGET)
