"""Listing tasks page by page, by the seq of the last one seen."""

from collections.abc import AsyncIterator

from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.ports import TaskPage, TaskQuery
from ade.stores.redis.codec import Record, seq_of, task_of
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.records import pairs, raw_records

_COMMON = frozenset({Status.PENDING, Status.RUNNING, Status.COMPLETED})
_PORTION = 200

Row = tuple[int, Task]  # seq and task


class Finding:
    def __init__(self, link: Link, places: Partitions) -> None:
        self._link = link
        self._places = places

    async def find(self, query: TaskQuery) -> TaskPage:
        """Each partition answers in its own order; the page is what comes first of all of them."""
        limit = min(max(query.limit, 1), 1000)
        rows: list[Row] = []
        for partition in self._places.all:
            rows += await self._first_rows(partition, query, limit + 1)
        rows.sort(key=lambda row: row[0], reverse=not query.oldest_first)
        tasks = [task for _, task in rows[:limit]]
        self._places.remember(tasks)
        return TaskPage(tasks, rows[limit - 1][0] if len(rows) > limit else None)

    async def _first_rows(self, partition: int, query: TaskQuery, limit: int) -> list[Row]:
        rows: list[Row] = []
        if query.statuses == {Status.RUNNING}:
            rows = [row async for row in self._running(partition) if _fits(*row, query)]
        else:
            for index in self._indexes(query):
                found = 0
                async for row in self._walk(partition, index, query):
                    if _fits(*row, query):
                        rows.append(row)
                        found += 1
                        if found == limit:
                            break
        rows.sort(key=lambda row: row[0], reverse=not query.oldest_first)
        return rows[:limit]

    @staticmethod
    def _indexes(query: TaskQuery) -> list[str]:
        if query.parent_id is not None:
            return [f"task:children:{query.parent_id}"]
        if query.statuses and query.statuses.isdisjoint(_COMMON):
            return [f"task:index:state:{status}" for status in sorted(query.statuses)]
        return ["task:all"]

    async def _walk(self, partition: int, index: str, query: TaskQuery) -> AsyncIterator[Row]:
        """The tasks of an index of seqs, in the order of the query, portion by portion."""
        key = self._link.names[partition].prefix + index
        after = query.after
        while True:
            first, last, *order = ("-inf", "+inf") if query.oldest_first else ("+inf", "-inf", "REV")
            start = first if after is None else f"({after}"
            command = ("ZRANGE", key, start, last, "BYSCORE", *order, "LIMIT", 0, _PORTION, "WITHSCORES")
            [members] = await self._link.ask(partition, command)
            for row in await self._read(partition, [task_id.decode() for task_id, _ in pairs(members)]):
                yield row
            if len(members) < 2 * _PORTION:
                return
            after = int(float(members[-1]))

    async def _running(self, partition: int) -> AsyncIterator[Row]:
        [members] = await self._link.ask(
            partition, ("ZRANGE", f"{self._link.names[partition].prefix}queue:leases", 0, -1)
        )
        for row in await self._read(partition, [member.decode() for member in members]):
            yield row

    async def _read(self, partition: int, task_ids: list[str]) -> list[Row]:
        records: list[Record] = await raw_records(self._link, partition, task_ids)
        return [(seq_of(record), task_of(record)) for record in records]


def _fits(seq: int, task: Task, query: TaskQuery) -> bool:
    """Whether all conditions of the query hold."""
    if query.after is not None and (seq <= query.after if query.oldest_first else seq >= query.after):
        return False
    wanted = (
        (query.queue, task.queue),
        (query.name, task.name),
        (query.parent_id, task.parent_id),
        (query.author_id, task.author_id),
        (query.worker_id, task.worker_id),
        (query.discarded, task.discarded),
    )
    return (
        (not query.statuses or task.status in query.statuses)
        and all(want is None or want == have for want, have in wanted)
        and (query.tag is None or query.tag in task.tags)
        and (query.created_from is None or task.created_at >= query.created_from)
        and (query.created_before is None or task.created_at < query.created_before)
        and (query.text is None or _mentions(task, query.text))
    )


def _mentions(task: Task, text: str) -> bool:
    """In the description, the name, the id or the error's message, whatever the case of ASCII letters."""
    message = "" if task.error is None else task.error.message
    return any(text.lower() in part.lower() for part in (task.description or "", task.name, task.id, message))
