"""Tasks: find them, look at one."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import structs

from ade.core.errors import WaitTimeout
from ade.core.records import Task
from ade.core.web.forms.tasks import GetTask, ListTasks, TaskFilter
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import page, position
from ade.operations.task_access import check_id, known
from ade.ports import TaskPage, TaskQuery

LARGEST_PAGE = 8_000_000  # bytes of arguments and results in one answer


async def list_tasks(office: Office, asked: Asked, query: ListTasks) -> Page[Task]:
    """A page has fewer than were asked for where they are large; the next one goes on there."""
    after = position("tasks", query)
    wanted = structs.replace(
        query_of(query),
        oldest_first=query.order == "oldest",
        limit=query.limit,
        after=after if isinstance(after, int) else None,
    )
    found = await find_some(office, wanted)
    return page("tasks", query, found.tasks, found.next)


async def find_some(office: Office, wanted: TaskQuery) -> TaskPage:
    """As many as are asked for, and fewer where they are large; one in any case."""
    found = await office.stores.tasks.find(wanted)
    while (size := size_of(found.tasks)) > LARGEST_PAGE and len(found.tasks) > 1:
        fewer = max(len(found.tasks) * LARGEST_PAGE // (2 * size), 1)
        found = await office.stores.tasks.find(structs.replace(wanted, limit=fewer))
    return found


def size_of(tasks: Iterable[Task]) -> int:
    """In bytes, about."""
    return sum(len(task.args) + (0 if task.result is None else len(task.result)) for task in tasks)


def query_of(query: TaskFilter) -> TaskQuery:
    return TaskQuery(
        statuses=frozenset(query.status),
        queue=query.queue,
        name=query.name,
        tag=query.tag,
        resource=query.resource,
        parent_id=query.parent,
        author_id=query.author,
        worker_id=query.worker,
        text=query.text,
        created_from=_ms(query.created_from),
        created_before=_ms(query.created_before),
        discarded=query.discarded,
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


async def get_task(office: Office, asked: Asked, task_id: str, query: GetTask) -> Task:
    """With `wait` the answer comes when the task is final, or as it is when that has not happened by then."""
    check_id(task_id)
    task = await _awaited(office, task_id, asked.wait_s) or await known(office, task_id)
    return structs.replace(task, args=await office.payloads.load(task.args)) if query.whole else task


async def _awaited(office: Office, task_id: str, wait_s: float) -> Task | None:
    if wait_s <= 0:
        return None
    try:
        return await office.watch().wait(task_id, wait_s)
    except WaitTimeout:
        return None
