"""Actions on all tasks that a filter finds."""

from ade.core.errors import InvalidFilter
from ade.core.web.forms.tasks import BulkAction
from ade.operations.kit import Asked, Office
from ade.operations.task_finding import query_of
from ade.ports import TaskQuery
from ade.queue import bulk
from ade.queue.bulk import Action, Reach, Reached


async def preview_bulk_action(office: Office, asked: Asked, body: BulkAction) -> Reach:
    """How many it would reach now; nothing is changed."""
    return await bulk.count(office.stores, Action(body.action), _query(body))


async def run_bulk_action(office: Office, asked: Asked, body: BulkAction) -> Reached:
    """Oldest first, so many in one call; while the answer says that there are more, it may be repeated."""
    return await bulk.act(
        office.stores,
        Action(body.action),
        _query(body),
        reason=body.reason,
        limit=body.limit,
        actor=asked.actor,
    )


def _query(body: BulkAction) -> TaskQuery:
    query = query_of(body.filter)
    if query == TaskQuery():  # a filter that was forgotten must not end everything
        raise InvalidFilter("say which tasks: the filter names no condition at all")
    return query
