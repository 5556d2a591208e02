"""Listing tasks page by page, by the seq of the last one seen."""

from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any

import apsw

from ade.core.lifecycle import Status
from ade.ports import TaskPage, TaskQuery
from ade.stores.sqlite.codec import packed
from ade.stores.sqlite.records import task_of
from ade.stores.sqlite.statements import sql

_COMMON = frozenset({Status.PENDING, Status.RUNNING, Status.COMPLETED})
_BEFORE_ALL, _BEHIND_ALL = -1, 1 << 62
_LEADING = {
    "all": ("NOT INDEXED", "true"),
    "rare": (
        "INDEXED BY task_rare",
        "t.status NOT IN ('pending', 'running', 'completed') AND t.status = :status",
    ),
    "running": ("INDEXED BY task_lease", "t.status = 'running'"),
    "children": ("INDEXED BY task_child", "t.parent_id IS NOT NULL AND t.parent_id = :parent_id"),
}


def find_tasks(connection: apsw.Connection, query: TaskQuery) -> TaskPage:
    """One statement for each index that can lead: rare statuses and running tasks have their own."""
    start = query.after if query.after is not None else (_BEFORE_ALL if query.oldest_first else _BEHIND_ALL)
    limit = min(max(query.limit, 1), 1000)
    bindings = {
        "statuses": packed(sorted(query.statuses)) if query.statuses else None,
        "queue": query.queue,
        "name": query.name,
        "tag": query.tag,
        "parent_id": query.parent_id,
        "author_id": query.author_id,
        "worker_id": query.worker_id,
        "text": None if query.text is None else f"%{_escaped(query.text)}%",
        "created_from": query.created_from,
        "created_before": query.created_before,
        "discarded": query.discarded,
        "start": start,
        "limit": limit + 1,
    }
    rows = _rows(connection, query, bindings)
    tasks = [task_of(connection, seq, record) for seq, record in rows[:limit]]
    return TaskPage(tasks, rows[limit - 1][0] if len(rows) > limit else None)


def _rows(connection: apsw.Connection, query: TaskQuery, bindings: dict[str, Any]) -> list[Any]:
    """At least as many rows as the page needs. Each rare status is read in its own order, so nothing is sorted."""
    leading = _leading_index(query)
    statement = _statement(leading, query.oldest_first)
    if leading != "rare":
        return connection.execute(statement, bindings).fetchall()
    found = (connection.execute(statement, bindings | {"status": status}).fetchall() for status in query.statuses)
    return sorted(chain.from_iterable(found), key=itemgetter(0), reverse=not query.oldest_first)


@cache
def _statement(leading: str, oldest_first: bool) -> str:
    index, condition = _LEADING[leading]
    beyond, order = (">", "ASC") if oldest_first else ("<", "DESC")
    return sql("find").format(index=index, condition=condition, beyond=beyond, order=order)


def _leading_index(query: TaskQuery) -> str:
    if query.parent_id is not None:
        return "children"
    if query.statuses == {Status.RUNNING}:
        return "running"
    if query.statuses and query.statuses.isdisjoint(_COMMON):
        return "rare"
    return "all"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
