"""Reads tasks: by ID, and page by page with filters. Read-only commands import only this part of the task store."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import apsw

from ade.stores.ports import TaskPage, TaskQuery
from ade.stores.sqlite.codec import packed, read_records, task_of
from ade.stores.sqlite.connection import sql
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers


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

# Filters by parameter name. A statement contains only the given ones, because each costs time per row. CASE, because
# SQLite evaluates the terms of an AND in any order, and a record that is not valid JSON must not be parsed.
_CONDITIONS = {
    "statuses": "t.status IN (SELECT value FROM json_each(:statuses))",
    "queue": "t.queue = :queue",
    "name": "t.name = :name",
    "parent_id": "t.parent_id = :parent_id",
    "worker_id": "t.worker_id = :worker_id",
    "created_from": "t.created_at >= :created_from",
    "created_before": "t.created_at < :created_before",
    "discarded": "t.discarded = :discarded",
    "tag": (
        "CASE WHEN json_valid(r.json) THEN EXISTS (SELECT 1 FROM json_each(r.json, '$.tags') WHERE value = :tag) END"
    ),
    "resource": (
        "CASE WHEN json_valid(r.json)"
        " THEN EXISTS (SELECT 1 FROM json_each(r.json, '$.resources') WHERE value = :resource)"
        " OR EXISTS (SELECT 1 FROM json_each(r.json, '$.locks') WHERE value ->> '$.resource' = :resource) END"
    ),
    "author_id": "CASE WHEN json_valid(r.json) THEN r.json ->> '$.author_id' = :author_id END",
    "text": (
        "(t.name LIKE :text ESCAPE '\\' OR t.id LIKE :text ESCAPE '\\'"
        " OR CASE WHEN json_valid(r.json) THEN r.json ->> '$.description' LIKE :text ESCAPE '\\'"
        " OR r.json ->> '$.error.message' LIKE :text ESCAPE '\\' END)"
    ),
}


class SqliteTaskReader:
    """The read methods of the TaskStore. A read-only store imports nothing else of it."""

    def __init__(self, readers: "Readers") -> None:
        self._readers = readers

    async def get(self, task_ids: Sequence[str]) -> list[Task | None]:
        def read(connection: apsw.Connection) -> list[Task | None]:
            found = {task.id: task for task in read_records(connection, "tasks.get_by_id", ids=packed(task_ids))}
            return [found.get(task_id) for task_id in task_ids]

        return await self._readers.call(read)

    async def find(self, query: TaskQuery) -> TaskPage:
        return await self._readers.call(lambda connection: find_tasks(connection, query))


def find_tasks(connection: apsw.Connection, query: TaskQuery) -> TaskPage:
    """Return a page of tasks, read by the best index: rare statuses, running tasks, and children have their own."""
    start = query.after if query.after is not None else (_BEFORE_ALL if query.oldest_first else _BEHIND_ALL)
    limit = min(max(query.limit, 1), 1000)
    asked = {
        "statuses": packed(sorted(query.statuses)) if query.statuses else None,
        "queue": query.queue,
        "name": query.name,
        "tag": query.tag,
        "resource": query.resource,
        "parent_id": query.parent_id,
        "author_id": query.author_id,
        "worker_id": query.worker_id,
        "text": None if query.text is None else f"%{_escaped(query.text)}%",
        "created_from": query.created_from,
        "created_before": query.created_before,
        "discarded": query.discarded,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    rows = _rows(connection, query, frozenset(given), {**given, "start": start, "limit": limit + 1})
    tasks = [task_of(connection, seq, record) for seq, record in rows[:limit]]
    return TaskPage(tasks, rows[limit - 1][0] if len(rows) > limit else None)


def _rows(connection: apsw.Connection, query: TaskQuery, given: frozenset[str], bindings: dict[str, Any]) -> list[Any]:
    """Return at least the rows of the page. Rare statuses are read one by one, each in index order without a sort."""
    leading = _leading_index(query)
    statement = _statement(leading, query.oldest_first, given)
    if leading != "rare":
        return connection.execute(statement, bindings).fetchall()
    found = (connection.execute(statement, bindings | {"status": status}).fetchall() for status in query.statuses)
    return sorted(chain.from_iterable(found), key=itemgetter(0), reverse=not query.oldest_first)


@lru_cache(maxsize=256)
def _statement(leading: str, oldest_first: bool, given: frozenset[str]) -> str:
    index, leads = _LEADING[leading]
    conditions = [leads, *(text for name, text in _CONDITIONS.items() if name in given)]
    beyond, order = (">", "ASC") if oldest_first else ("<", "DESC")
    return sql("tasks.find").format(index=index, conditions="\n   AND ".join(conditions), beyond=beyond, order=order)


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
