"""HTTP operations that read tasks: lists, one task, its result, output, and events, and why it is not running."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw, structs

from ade.accounts.model import Caller, Permission
from ade.errors import IllegalTransition, InvalidFilter, ResultExpired, WaitTimeout
from ade.events.model import Event, is_of_access
from ade.locks.model import normal_name
from ade.server.context import (
    RequestContext,
    Services,
    can_read_access_events,
    check_own,
    check_readable,
    page,
    position,
    readable_ids,
    scope_of,
    writer,
)
from ade.server.operation import ETagUse, ReadRule, RouteAccess, TrafficClass, operation
from ade.server.pagination import Page
from ade.stores.ports import TaskPage, TaskQuery
from ade.tasks.api.requests import GetTask, ListLines, ListNames, ListTasks, StoredTaskResult, TaskFilter
from ade.tasks.definitions import arguments_by_name
from ade.tasks.identifiers import TASK_ID, is_task_id, owner_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, MaybeRaw, OutputLine, Task
from ade.tasks.read_access import ReadScope
from ade.tasks.reasons import Explanation
from ade.tasks.service import get, result_of, unknown
from ade.worker.instrumentation import RunReference


async def existing_task(services: Services, task_id: str) -> Task:
    """Return the task. Raises UnknownTask."""
    check_id(task_id)
    return await get(services.stores, task_id)


async def readable_task(services: Services, caller: Caller | None, task_id: str) -> Task:
    """Return the task. Raises UnknownTask, also if the caller does not read it."""
    task = await existing_task(services, task_id)
    await check_readable(services, caller, task, unknown(task_id))
    return task


def check_id(task_id: str) -> None:
    """Raise UnknownTask for a malformed ID, without a query."""
    if not is_task_id(task_id):
        raise unknown(task_id)


async def owned_task(services: Services, request: RequestContext, task_id: str) -> Task:
    """Return the task if the caller can change it and its version matches If-Match. Raises UnknownTask, or 412."""
    task = await existing_task(services, task_id)
    if request.access is RouteAccess.OWN:
        await check_own(services, request, task.author_id, unknown(task_id))
    request.check_version(task.version)
    return task


def version_check(request: RequestContext) -> Callable[[Task], None]:
    """Return a check of If-Match on the newest record, just before the service decides. It raises 412."""
    return lambda task: request.check_version(task.version)


async def replayed(services: Services, request: RequestContext, task: Task, args: dict[str, Any] | None) -> Task:
    """Replay a failed task. The status is checked first, so that rejected arguments leave no blob behind."""
    if task.status is not Status.FAILED:
        raise IllegalTransition(f"task {task.id} is {task.status}: only a failed task can be run again")
    return await replay_of(services, request)(
        task.id,
        args=None if args is None else await checked_args(services, task, args),
        check=version_check(request),
    )


def replay_of(services: Services, request: RequestContext) -> Callable[..., Awaitable[Task]]:
    """Return the function that replays one task in the name of the caller. It takes the ID of the task."""
    from ade.approvals.submission import replay  # loads asyncio, which plain reads do not need

    return partial(replay, services.stores, services.payloads, actor=writer(request))


async def checked_args(services: Services, task: Task, args: dict[str, Any]) -> Raw:
    """Return new arguments of a task as JSON, checked against its definition if there is one."""
    _, raw = await arguments_by_name(services.stores, task.name, args, allow_unknown=True)
    return raw


LARGEST_PAGE = 8_000_000  # bytes of arguments and results in one response
_MOST_IDS = 50  # in one request, whose address and parameters have limits too
BUDGET = 20_000  # tasks that one request examines for filters without an index


@operation("GET /tasks", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_tasks(services: Services, request: RequestContext, query: ListTasks) -> Page[Task]:
    """List tasks by a filter, page by page. A page is shorter than its limit where tasks are large; the next page
    continues there. Parent, author, tag, resource, team, and ticket have an index. For other filters, one request
    examines up to 20,000 tasks: then the page has `is_partial`, and `next` continues the search. With `ids`, it returns
    up to 50 tasks by ID, without those that do not exist. With `count`, the page has the number of all matches."""
    scope = scope_of(request.caller)
    if query.ids:
        return await _tasks_by_id(services, query, scope)
    count = await _count(services, query, scope) if query.count else None
    after = position("tasks", query)
    wanted = structs.replace(
        query_of(query),
        oldest_first=query.order == "oldest",
        limit=query.limit,
        after=after if isinstance(after, int) else None,
        budget=BUDGET,
    )
    found = await find_some(services, wanted, scope)
    listed = page("tasks", query, found.tasks, found.next, is_partial=found.is_partial)
    return listed if count is None else structs.replace(listed, count=count)


async def _tasks_by_id(services: Services, query: ListTasks, scope: ReadScope | None) -> Page[Task]:
    """Return these tasks in this order, page by page where they are large. Raises InvalidFilter."""
    if query_of(query) != TaskQuery() or query.count:
        raise InvalidFilter("ids cannot be combined with other filters or with count. Send ids alone.")
    if len(query.ids) > _MOST_IDS:
        raise InvalidFilter(f"{len(query.ids)} IDs are too many. Send up to {_MOST_IDS} per request.")
    after = position("tasks", query)
    begin = after if isinstance(after, int) and after >= 0 else 0
    ids = query.ids[begin : begin + query.limit]
    known = [task_id for task_id in ids if is_task_id(task_id)]
    if scope is not None:
        readable = await readable_ids(services, scope, known)
        known = [task_id for task_id in known if task_id in readable]
    found = [task for task in await services.stores.tasks.get(known) if task is not None]
    sizes = accumulate(size_of([task]) for task in found)
    shown = found[: max(sum(size <= LARGEST_PAGE for size in sizes), 1)]
    end = begin + len(ids) if len(shown) == len(found) else begin + ids.index(shown[-1].id) + 1
    return page("tasks", query, shown, end if end < len(query.ids) else None)


async def _count(services: Services, query: ListTasks, scope: ReadScope | None) -> int:
    """Return how many tasks match, from the counters of the store. Raises InvalidFilter for other filters, and for what
    a limited account reads only in part."""
    counted = TaskQuery(statuses=frozenset(query.status), queue=query.queue, name=query.name)
    if query_of(query) != counted:
        raise InvalidFilter("count works with the filters status, queue, and name. Omit count, or the other filters.")
    if scope is not None and (query.queue not in scope.queues or (scope.names and query.name not in scope.names)):
        raise InvalidFilter(
            f"{scope.account} reads its own tasks and queues, so it counts only the tasks of a queue that it is bound"
            " to, and of a name if it is bound to names. Add queue and name, or omit count."
        )
    return sum(
        each.count
        for each in await services.stores.queues.tallies()
        if (not query.status or each.status in query.status)
        and query.queue in (None, each.queue)
        and query.name in (None, each.name)
    )


def limited(wanted: TaskQuery, scope: ReadScope | None) -> TaskQuery | None:
    """Return the query with the limits of the caller; None if nothing can match. An author has an index."""
    if scope is None:
        return wanted
    if not scope.is_author_alone:
        return structs.replace(wanted, scope=scope)
    return structs.replace(wanted, author_id=scope.account) if wanted.author_id in (None, scope.account) else None


async def find_some(services: Services, wanted: TaskQuery, scope: ReadScope | None = None) -> TaskPage:
    """Return a page of tasks: fewer than requested if they are large, but at least one."""
    within = limited(wanted, scope)
    if within is None:
        return TaskPage([], None)
    wanted = within
    found = await services.stores.tasks.find(wanted)
    while (size := size_of(found.tasks)) > LARGEST_PAGE and len(found.tasks) > 1:
        fewer = max(len(found.tasks) * LARGEST_PAGE // (2 * size), 1)
        found = await services.stores.tasks.find(structs.replace(wanted, limit=fewer))
    return found


def size_of(tasks: Iterable[Task]) -> int:
    """Return the approximate size in bytes."""
    return sum(len(task.args) + (0 if task.result is None else len(task.result)) for task in tasks)


def query_of(query: TaskFilter) -> TaskQuery:
    """Convert the filter of a request to a store query."""
    return TaskQuery(
        statuses=frozenset(query.status),
        queue=query.queue,
        name=query.name,
        tag=query.tag,
        resource=None if query.resource is None else normal_name(query.resource),
        parent_id=query.parent,
        author_id=query.author,
        team=query.team,
        ticket_ref=query.ticket,
        worker_id=query.worker,
        text=query.text,
        created_from=_ms(query.created_from),
        created_before=_ms(query.created_before),
        discarded=query.discarded,
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


@operation("GET /tasks/{task_id}", reads=ReadRule.SCOPED, permission=Permission.READ, tag=ETagUse.ANSWERED, waits=True)
async def get_task(services: Services, request: RequestContext, task_id: str, query: GetTask) -> Task:
    """One task; with ?wait= as soon as it is final. With `wait`, the response comes when the task is final, or at the
    end of the wait with the task as it is."""
    check_id(task_id)
    if request.wait_s > 0 and scope_of(request.caller) is not None:
        await readable_task(services, request.caller, task_id)  # before the wait, which would show that it exists
    task = await _awaited(services, request, task_id, query) or await existing_task(services, task_id)
    await check_readable(services, request.caller, task, unknown(task_id))
    return structs.replace(task, args=await services.payloads.load(task.args)) if query.whole else task


async def _awaited(services: Services, request: RequestContext, task_id: str, query: GetTask) -> Task | None:
    if request.wait_s <= 0:
        return None
    run = None if query.run is None or query.run_task is None else await _own_run(services, request, query)
    try:
        return await services.watch().wait(task_id, request.wait_s, run)
    except WaitTimeout:
        return None


async def _own_run(services: Services, request: RequestContext, query: GetTask) -> RunReference | None:
    """Return the run that waits, if it is one of the caller's that is running now."""
    if query.run is None or query.run_task is None or not is_task_id(query.run_task) or request.caller is None:
        return None
    [task] = await services.stores.tasks.get([query.run_task])
    is_own = task is not None and owner_of(task.worker_id or "") == request.caller.user.id
    if task is None or not is_own or task.status is not Status.RUNNING or task.run_id != query.run:
        return None
    return RunReference(task.id, query.run)


# Details of one task: its result, output, events, and explanation.


_LARGEST_SCHEMAS = 500_000  # bytes on one page


@operation(
    "GET /tasks/{task_id}/result",
    reads=ReadRule.SCOPED,
    permission=Permission.READ,
    tag=ETagUse.ANSWERED,
    problems=(410,),
)
async def get_task_result(services: Services, request: RequestContext, task_id: str) -> StoredTaskResult:
    """The whole result, also a large one. Raises ResultExpired for a result that was stored for a limited time."""
    task = await readable_task(services, request.caller, task_id)
    result = await result_of(services.stores, services.payloads, task)
    if task.result_expired or (result is None and task.result is not None):
        raise ResultExpired(f"the result of task {task.id} expired after its result_ttl")
    return _result(task, result)


def _result(task: Task, result: MaybeRaw) -> StoredTaskResult:
    return StoredTaskResult(
        task_id=task.id,
        status=task.status,
        version=task.version,
        result=result,
        error=task.error,
        reason=task.reason,
    )


@operation(
    "GET /tasks/{task_id}/output",
    reads=ReadRule.SCOPED,
    permission=Permission.READ,
    traffic=TrafficClass.STREAM,
    is_stream=True,
)
async def get_task_output(
    services: Services, request: RequestContext, task_id: str, query: ListLines
) -> Page[OutputLine]:
    """The lines it has written, at once or as a stream. Of all its runs, in the order in which the lines were written.
    To continue later, pass the seq of the last line as `after`. A page ends early where lines are long."""
    after = await _begin(services, request, f"output:{task_id}", task_id, query)
    found = await services.stores.outputs.read_output(task_id, after, query.limit)
    lines = first_lines(found, LARGEST_PAGE)
    is_more = len(found) == query.limit or len(lines) < len(found)
    return page(f"output:{task_id}", query, lines, lines[-1].seq if is_more else None)


def first_lines(lines: Sequence[OutputLine], most: int) -> Sequence[OutputLine]:
    """Return the first lines with at most `most` characters in total, but at least one line."""
    ends = accumulate(len(line.text) for line in lines)
    return lines[: max(sum(end <= most for end in ends), 1)]


@operation("GET /tasks/{task_id}/events", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_task_events(services: Services, request: RequestContext, task_id: str, query: ListLines) -> Page[Event]:
    """What has happened to it. In the order in which they happened."""
    after = await _begin(services, request, f"events:{task_id}", task_id, query)
    events = await services.stores.events.read(after, query.limit, task_id=task_id)
    shown = events if can_read_access_events(request.caller) else [event for event in events if not is_of_access(event)]
    return page(f"events:{task_id}", query, shown, events[-1].seq if len(events) == query.limit else None)


async def _begin(services: Services, request: RequestContext, of_list: str, task_id: str, query: ListLines) -> int:
    await readable_task(services, request.caller, task_id)
    begin = position(of_list, query)
    return begin if isinstance(begin, int) else query.after


@operation("GET /tasks/{task_id}/explain", reads=ReadRule.SCOPED, permission=Permission.READ)
async def explain_task(services: Services, request: RequestContext, task_id: str) -> Explanation:
    """Why it is not running."""
    from ade.tasks.explain import explain

    check_id(task_id)
    scope = scope_of(request.caller)
    if scope is None:
        return await explain(services.stores, task_id)
    await readable_task(services, request.caller, task_id)
    return await _without_foreign_tasks(services, scope, await explain(services.stores, task_id))


async def _without_foreign_tasks(services: Services, scope: ReadScope, found: Explanation) -> Explanation:
    """Return an explanation that does not name tasks that a limited account does not read, such as holders of locks."""
    text = msgspec.json.encode(found).decode()
    named = set(TASK_ID.findall(text))
    for task_id in named - await readable_ids(services, scope, named):
        text = text.replace(task_id, "another task")
    return msgspec.json.decode(text, type=Explanation)


@operation("GET /definitions", reads=ReadRule.SHARED, permission=Permission.READ)
async def list_definitions(services: Services, request: RequestContext, query: ListNames) -> Page[Definition]:
    """Names that workers run, with the schema of their arguments. A page ends early where schemas are large; the next
    page continues there."""
    begin = position("definitions", query)
    begin = begin if isinstance(begin, int) and begin >= 0 else 0
    definitions = await services.stores.workers.definitions()
    end, size, last = begin, 0, min(begin + query.limit, len(definitions))
    while end < last and size < _LARGEST_SCHEMAS:
        size += len(msgspec.json.encode(definitions[end].schema))
        end += 1
    return page("definitions", query, definitions[begin:end], end if end < len(definitions) else None)
