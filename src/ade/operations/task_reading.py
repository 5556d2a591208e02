"""What is known about one task: its result, what it has written, what has happened to it, why it waits."""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from ade.core.errors import ResultExpired
from ade.core.events import Event, is_of_access
from ade.core.records import Definition, MaybeRaw, OutputLine, Task
from ade.core.web.forms.tasks import ListLines, ListNames
from ade.insight.outcomes import TaskResult
from ade.insight.reasons import Explanation
from ade.operations.events import sees_access
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import page, position
from ade.operations.task_access import check_id, known
from ade.operations.task_finding import LARGEST_PAGE
from ade.queue.tasks import result_of

_LARGEST_SCHEMAS = 500_000  # bytes on one page


async def get_task_result(office: Office, asked: Asked, task_id: str) -> TaskResult:
    """Raises ResultExpired where it was kept only for a time."""
    task = await known(office, task_id)
    result = await result_of(office.stores, office.payloads, task)
    if task.result_expired or (result is None and task.result is not None):
        raise ResultExpired(f"the result of task {task.id} was kept only for its result_ttl and is gone")
    return _result(task, result)


def _result(task: Task, result: MaybeRaw) -> TaskResult:
    return TaskResult(
        task_id=task.id,
        status=task.status,
        version=task.version,
        result=result,
        error=task.error,
        reason=task.reason,
    )


async def get_task_output(office: Office, asked: Asked, task_id: str, query: ListLines) -> Page[OutputLine]:
    """Of all its runs, in the order they were written. To go on later, give the seq of the last line as `after`. A page
    ends early where lines are long."""
    after = await _begin(office, f"output:{task_id}", task_id, query)
    found = await office.stores.outputs.read_output(task_id, after, query.limit)
    lines = first_lines(found, LARGEST_PAGE)
    is_more = len(found) == query.limit or len(lines) < len(found)
    return page(f"output:{task_id}", query, lines, lines[-1].seq if is_more else None)


def first_lines(lines: Sequence[OutputLine], most: int) -> Sequence[OutputLine]:
    """As many of them as have so many characters together; one in any case."""
    ends = accumulate(len(line.text) for line in lines)
    return lines[: max(sum(end <= most for end in ends), 1)]


async def list_task_events(office: Office, asked: Asked, task_id: str, query: ListLines) -> Page[Event]:
    """In the order they happened."""
    after = await _begin(office, f"events:{task_id}", task_id, query)
    events = await office.stores.events.read(after, query.limit, task_id=task_id)
    shown = events if sees_access(asked.caller) else [event for event in events if not is_of_access(event)]
    return page(f"events:{task_id}", query, shown, events[-1].seq if len(events) == query.limit else None)


async def _begin(office: Office, of_list: str, task_id: str, query: ListLines) -> int:
    await known(office, task_id)
    begin = position(of_list, query)
    return begin if isinstance(begin, int) else query.after


async def explain_task(office: Office, asked: Asked, task_id: str) -> Explanation:
    from ade.insight.explain import explain

    check_id(task_id)
    return await explain(office.stores, task_id)


async def list_definitions(office: Office, asked: Asked, query: ListNames) -> Page[Definition]:
    """A page ends early where schemas are large; the next one goes on there."""
    begin = position("definitions", query)
    begin = begin if isinstance(begin, int) and begin >= 0 else 0
    definitions = await office.stores.workers.definitions()
    end, size, last = begin, 0, min(begin + query.limit, len(definitions))
    while end < last and size < _LARGEST_SCHEMAS:
        size += len(msgspec.json.encode(definitions[end].schema))
        end += 1
    return page("definitions", query, definitions[begin:end], end if end < len(definitions) else None)
