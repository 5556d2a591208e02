"""Reads tasks: by ID, and page by page with filters. Read-only commands import only this part of the task store.

A list whose filters have no index is read in windows: each is a short statement in the lane for scans, so that no list
delays other reads for long, and a list can stop when its budget is used up.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import apsw
from msgspec import structs

from ade.stores.ports import TaskPage, TaskQuery
from ade.stores.sqlite.codec import packed, read_records, task_of
from ade.stores.sqlite.connection import sql
from ade.tasks.identifiers import worker_prefix
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.tasks.read_access import ReadScope


_COMMON = frozenset({Status.PENDING, Status.RUNNING, Status.COMPLETED})
_BEFORE_ALL, _BEHIND_ALL = -1, 1 << 62
_FIRST_WINDOW, _LARGEST_WINDOW = 500, 1_000  # tasks; most lists find a page in the first one
_LABELED = (
    "task_label CROSS JOIN task t ON t.seq = task_label.seq"  # CROSS JOIN: labels lead, in the order of their seq
)
_LEADING = {
    "all": ("task t NOT INDEXED", "true"),
    "rare": (
        "task t INDEXED BY task_rare",
        "t.status NOT IN ('pending', 'running', 'completed') AND t.status = :status",
    ),
    "running": ("task t INDEXED BY task_lease", "t.status = 'running'"),
    "children": ("task t INDEXED BY task_child", "t.parent_id IS NOT NULL AND t.parent_id = :parent_id"),
    **{each: (_LABELED, f"task_label.label = :{each}") for each in ("ticket", "resource", "tag", "author_id", "team")},
}
_LABELS = frozenset({"ticket", "resource", "tag", "author_id", "team"})

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
    "ticket": "EXISTS (SELECT 1 FROM task_label k WHERE k.label = :ticket AND k.seq = t.seq)",
    "resource": "EXISTS (SELECT 1 FROM task_label k WHERE k.label = :resource AND k.seq = t.seq)",
    "tag": "EXISTS (SELECT 1 FROM task_label k WHERE k.label = :tag AND k.seq = t.seq)",
    "author_id": "EXISTS (SELECT 1 FROM task_label k WHERE k.label = :author_id AND k.seq = t.seq)",
    "team": "EXISTS (SELECT 1 FROM task_label k WHERE k.label = :team AND k.seq = t.seq)",
    "text": (
        "(t.name LIKE :text ESCAPE '\\' OR t.id LIKE :text ESCAPE '\\'"
        " OR CASE WHEN json_valid(r.json) THEN r.json ->> '$.description' LIKE :text ESCAPE '\\'"
        " OR r.json ->> '$.error.message' LIKE :text ESCAPE '\\' END)"
    ),
    "scope": (
        "(EXISTS (SELECT 1 FROM task_label k WHERE k.label = :scope AND k.seq = t.seq)"
        " OR substr(t.worker_id, 1, length(:scope_workers)) = :scope_workers"
        " OR (t.queue IN (SELECT value FROM json_each(:scope_queues))"
        " AND (:scope_names IS NULL OR t.name IN (SELECT value FROM json_each(:scope_names))))"
        " OR EXISTS (SELECT 1 FROM task p WHERE p.id = t.parent_id"
        " AND (EXISTS (SELECT 1 FROM task_label k WHERE k.label = :scope AND k.seq = p.seq)"
        " OR substr(p.worker_id, 1, length(:scope_workers)) = :scope_workers)))"
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
        if not _is_scan(query):
            return await self._readers.call(lambda connection: find_tasks(connection, query))
        limit = min(max(query.limit, 1), 1000)
        found: list[Task] = []
        after, scanned, window = query.after, 0, _FIRST_WINDOW
        while True:
            if query.budget is not None:
                window = max(min(window, query.budget - scanned), 1)
            wanted = structs.replace(query, after=after, limit=limit - len(found))
            page = await self._readers.scan(partial(_find_in_window, query=wanted, window=window))
            found += page.tasks
            scanned, after = scanned + window, page.next
            if after is None or len(found) >= limit:
                return TaskPage(found, after, examined=scanned)
            if query.budget is not None and scanned >= query.budget:
                return TaskPage(found, after, is_partial=True, examined=scanned)
            window = min(2 * window, _LARGEST_WINDOW)


def find_tasks(connection: apsw.Connection, query: TaskQuery) -> TaskPage:
    """Return a page of tasks, read by the best index: rare statuses, running tasks, children, and labels have
    their own."""
    limit = min(max(query.limit, 1), 1000)
    given = _given(query)
    rows = _rows(connection, query, frozenset(given), {**given, "start": _start(query), "limit": limit + 1})
    tasks = [task_of(connection, seq, record) for seq, record in rows[:limit]]
    return TaskPage(tasks, rows[limit - 1][0] if len(rows) > limit else None)


def _find_in_window(connection: apsw.Connection, *, query: TaskQuery, window: int) -> TaskPage:
    """The same, of the next tasks of the index alone. At the end of the window, `next` is its last task."""
    given, leading = _given(query), _leading_index(query)
    bindings = {**given, "start": _start(query), "window": window}
    statement = _window_statement(leading, query.oldest_first)
    statuses = query.statuses if leading == "rare" else ("",)
    found = [connection.execute(statement, bindings | {"status": each}).fetchall() for each in statuses]
    ends: list[Any] = [seq for rows in found for (seq,) in rows]
    if not ends:
        return find_tasks(connection, query)
    end: int = min(ends) if query.oldest_first else max(ends)
    rows = _rows(connection, query, frozenset({*given, "end"}), bindings | {"end": end, "limit": query.limit + 1})
    tasks = [task_of(connection, seq, record) for seq, record in rows[: query.limit]]
    return TaskPage(tasks, rows[query.limit - 1][0] if len(rows) > query.limit else end)


def _start(query: TaskQuery) -> int:
    return query.after if query.after is not None else (_BEFORE_ALL if query.oldest_first else _BEHIND_ALL)


def _is_scan(query: TaskQuery) -> bool:
    """Whether tasks of the leading index must be read in vain, because a filter has no index, or another one."""
    leading = _leading_index(query)
    indexed = {"rare": "statuses", "children": "parent_id"}.get(leading, leading)
    return leading != "running" and bool(_given(query).keys() - {indexed})


def _given(query: TaskQuery) -> dict[str, Any]:
    """Return the filters of a query as parameters of the statement."""
    asked = {
        "statuses": packed(sorted(query.statuses)) if query.statuses else None,
        "queue": query.queue,
        "name": query.name,
        "tag": None if query.tag is None else f"tag:{query.tag}",
        "resource": None if query.resource is None else f"resource:{query.resource}",
        "parent_id": query.parent_id,
        "author_id": None if query.author_id is None else f"author:{query.author_id}",
        "team": None if query.team is None else f"team:{query.team}",
        "ticket": None if query.ticket_ref is None else f"ticket:{query.ticket_ref}",
        "worker_id": query.worker_id,
        "text": None if query.text is None else f"%{_escaped(query.text)}%",
        "created_from": query.created_from,
        "created_before": query.created_before,
        "discarded": query.discarded,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return given if query.scope is None else given | _scope(query.scope)


def _scope(scope: "ReadScope") -> dict[str, Any]:
    """Return the parameters of the tasks that a limited account reads."""
    return {
        "scope": f"author:{scope.account}",
        "scope_workers": worker_prefix(scope.account) if scope.works else None,
        "scope_queues": packed(scope.queues),
        "scope_names": packed(scope.names) if scope.names else None,
    }


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
    conditions = [leads, *(text for name, text in _CONDITIONS.items() if name in given and name != leading)]
    beyond, order = (">", "ASC") if oldest_first else ("<", "DESC")
    return sql("tasks.find").format(
        index=index,
        conditions="\n   AND ".join(conditions),
        seq=_seq_of(leading),
        beyond=beyond,
        order=order,
        window=f"\n   AND {_seq_of(leading)} {'<=' if oldest_first else '>='} :end" if "end" in given else "",
    )


@lru_cache(maxsize=64)
def _window_statement(leading: str, oldest_first: bool) -> str:
    index, leads = _LEADING[leading]
    beyond, order = (">", "ASC") if oldest_first else ("<", "DESC")
    index = "task_label" if leading in _LABELS else index
    return sql("tasks.end_of_window").format(index=index, leads=leads, seq=_seq_of(leading), beyond=beyond, order=order)


def _seq_of(leading: str) -> str:
    return "task_label.seq" if leading in _LABELS else "t.seq"


def _leading_index(query: TaskQuery) -> str:
    if query.parent_id is not None:
        return "children"
    if query.ticket_ref is not None:
        return "ticket"
    if query.statuses == {Status.RUNNING}:
        return "running"
    for label, value in (("resource", query.resource), ("tag", query.tag), ("author_id", query.author_id)):
        if value is not None:
            return label
    if query.team is not None:
        return "team"
    if query.statuses and query.statuses.isdisjoint(_COMMON):
        return "rare"
    return "all"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
