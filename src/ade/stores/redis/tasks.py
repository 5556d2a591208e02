"""Task store on Redis: listing with keyset pagination by seq, reads, inserts, claims, and commits."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Raw

from ade.errors import StaleLease
from ade.stores.ports import TaskPage, TaskQuery
from ade.stores.redis.claims import RedisClaims
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.codec import aged_of, as_text, pairs, raw_records, read_records
from ade.stores.redis.commits import RedisCommits
from ade.stores.redis.cross_partition import CrossPartitionDependencies
from ade.stores.redis.inserts import RedisBlockingInserts, RedisInserts
from ade.stores.redis.keys import LABELED
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.wakeups import RedisWakeups
from ade.tasks.changes import Change
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.read_access import ReadScope

_COMMON = frozenset({Status.PENDING, Status.RUNNING, Status.COMPLETED})
_PORTION = 200
_SCANNED = 40  # tasks of a portion of a list with a budget: decoding them takes less than a millisecond

Row = tuple[int, Task]  # seq and task
Condition = Callable[[int, Task], bool]


class RedisTaskQueries:
    """Lists tasks that match a query.

    Lists with a budget, which come from outside, take turns by portions and pause as long as they work, so that they
    leave half of the time to everything else that runs in this event loop.
    """

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places
        self._labeled: set[int] = set()  # partitions whose indexes by label are complete
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def find(self, query: TaskQuery) -> TaskPage:
        """Merge the first matches of every partition into one page. A walk that its budget ended bounds the page."""
        limit = min(max(query.limit, 1), 1000)
        rows: list[Row] = []
        ends: list[int] = []
        examined = 0
        for partition in self._places.all:
            found, read = await self._first_rows(partition, query, limit + 1, ends)
            rows, examined = rows + found, examined + read
        rows.sort(key=lambda row: row[0], reverse=not query.oldest_first)
        end = None if not ends else min(ends) if query.oldest_first else max(ends)
        if end is not None:  # the tasks beyond it are not complete yet
            rows = [row for row in rows if (row[0] <= end if query.oldest_first else row[0] >= end)]
        tasks = [task for _, task in rows[:limit]]
        self._places.remember(tasks)
        if len(rows) > limit:
            return TaskPage(tasks, rows[limit - 1][0], examined=examined)
        return TaskPage(tasks, end, is_partial=end is not None, examined=examined)

    async def _first_rows(self, partition: int, query: TaskQuery, limit: int, ends: list[int]) -> tuple[list[Row], int]:
        """Return the first matches, and how many tasks were examined; if the budget is used up, add the last of these
        to `ends`."""
        conditions, examined = list(_conditions(query)), 0
        if query.statuses == {Status.RUNNING}:
            rows = await self._in_scope(_fitting(await self._running(partition), conditions), query.scope)
        else:
            rows = []
            indexes = self._indexes(query, is_labeled=await self._is_labeled(partition, query))
            for index in indexes:
                found: list[Row] = []
                left = None if query.budget is None else max(query.budget // len(indexes) // len(self._places.all), 1)
                async for portion, last in self._walk(partition, index, query):
                    found += await self._in_scope(_fitting(portion, conditions), query.scope)
                    examined += len(portion)
                    if len(found) >= limit:
                        break
                    if left is not None and last is not None and (left := left - len(portion)) <= 0:
                        ends.append(last)
                        break
                rows += found[:limit]
        rows.sort(key=lambda row: row[0], reverse=not query.oldest_first)
        return rows[:limit], examined

    async def _in_scope(self, rows: list[Row], scope: ReadScope | None) -> list[Row]:
        """Return the rows that a limited account reads. Parents can be in another partition."""
        if scope is None:
            return rows
        doubtful = [task.parent_id for _, task in rows if task.parent_id is not None and not scope.allows(task)]
        parents = await read_records(self._link, self._places, list(dict.fromkeys(doubtful))) if doubtful else {}
        return [row for row in rows if scope.allows(row[1], parents.get(row[1].parent_id or ""))]

    async def _is_labeled(self, partition: int, query: TaskQuery) -> bool:
        """Whether an index by label is complete. In a store of an earlier version it is after the first repair."""
        if query.resource is None and query.tag is None and query.author_id is None:
            return True
        if partition not in self._labeled:
            [is_labeled] = await self._link.ask(
                partition, ("HGET", f"{self._link.names[partition].prefix}meta", LABELED)
            )
            if is_labeled is None:
                return False
            self._labeled.add(partition)
        return True

    @staticmethod
    def _indexes(query: TaskQuery, *, is_labeled: bool) -> list[str]:
        if query.parent_id is not None:
            return [f"task:children:{query.parent_id}"]
        if query.ticket_ref is not None:
            return [f"task:index:ticket:{query.ticket_ref}"]
        for label, value in (("resource", query.resource), ("tag", query.tag), ("author", query.author_id)):
            if value is not None and is_labeled:
                return [f"task:index:{label}:{value}"]
        if query.team is not None:
            return [f"task:index:team:{query.team}"]
        if query.statuses and query.statuses.isdisjoint(_COMMON):
            return [f"task:index:state:{status}" for status in sorted(query.statuses)]
        return ["task:all"]

    async def _walk(self, partition: int, index: str, query: TaskQuery) -> AsyncIterator[tuple[list[Row], int | None]]:
        """The tasks of an index by seq, in the order of the query, in portions; None after the last one."""
        key = self._link.names[partition].prefix + index
        after = query.after
        portion = min(_PORTION, query.limit + 1)  # if all tasks match, as usual, no task is read in vain
        turns, is_first = None if query.budget is None else self._turns_here(), True
        while True:
            first, last, *order = ("-inf", "+inf") if query.oldest_first else ("+inf", "-inf", "REV")
            start = first if after is None else f"({after}"
            command = ("ZRANGE", key, start, last, "BYSCORE", *order, "LIMIT", 0, portion, "WITHSCORES")
            if turns is None or is_first:
                members, rows = await self._portion(partition, command)
            else:
                async with turns:
                    began = time.monotonic()
                    members, rows = await self._portion(partition, command)
                    await asyncio.sleep(time.monotonic() - began)  # half of the time is for everything else
            is_end = len(members) < 2 * portion
            after = None if is_end else int(float(members[-1]))
            yield rows, after
            if is_end:
                return
            is_first, portion = False, portion if turns is None else _SCANNED

    async def _portion(self, partition: int, command: tuple[Any, ...]) -> tuple[list[Any], list[Row]]:
        [members] = await self._link.ask(partition, command)
        return members, await self._read(partition, [task_id.decode() for task_id, _ in pairs(members)])

    def _turns_here(self) -> asyncio.Lock:
        return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def _running(self, partition: int) -> list[Row]:
        [members] = await self._link.ask(
            partition, ("ZRANGE", f"{self._link.names[partition].prefix}queue:leases", 0, -1)
        )
        return await self._read(partition, [member.decode() for member in members])

    async def _read(self, partition: int, task_ids: list[str]) -> list[Row]:
        return [aged_of(record) for record in await raw_records(self._link, partition, task_ids)]


def _fitting(rows: list[Row], conditions: list[Condition]) -> list[Row]:
    if not conditions:
        return rows
    return [row for row in rows if all(holds(*row) for holds in conditions)]


def _conditions(query: TaskQuery) -> Iterator[Condition]:
    """The conditions of a query as functions; most queries have few."""
    if (after := query.after) is not None:
        yield (lambda seq, _: seq > after) if query.oldest_first else (lambda seq, _: seq < after)
    if statuses := query.statuses:
        yield lambda _, task: task.status in statuses
    for name in ("queue", "name", "parent_id", "author_id", "team", "ticket_ref", "worker_id", "discarded"):
        if (wanted := getattr(query, name)) is not None:
            yield partial(_has, name, wanted)
    if (tag := query.tag) is not None:
        yield lambda _, task: tag in task.tags
    if (resource := query.resource) is not None:
        yield lambda _, task: _names(task, resource)
    if (first := query.created_from) is not None:
        yield lambda _, task: task.created_at >= first
    if (end := query.created_before) is not None:
        yield lambda _, task: task.created_at < end
    if (text := query.text) is not None:
        yield lambda _, task: _mentions(task, text)


def _has(name: str, wanted: object, _: int, task: Task) -> bool:
    return bool(getattr(task, name) == wanted)


def _names(task: Task, resource: str) -> bool:
    return resource in task.resources or any(spec.resource == resource for spec in task.locks)


def _mentions(task: Task, text: str) -> bool:
    """Whether the description, name, ID, or error message contains the text, ignoring case."""
    message = "" if task.error is None else task.error.message
    return any(text.lower() in part.lower() for part in (task.description or "", task.name, task.id, message))


class RedisTasks:
    """The task store, composed of inserts, claims, commits, and queries."""

    def __init__(
        self,
        link: RedisClient,
        places: Partitions,
        wakeups: RedisWakeups | None = None,
        usual_depth: int | None = None,
    ) -> None:
        self._link = link
        self._places = places
        crossing = CrossPartitionDependencies(link, places)
        self._committing = RedisCommits(link, places, crossing, wakeups)
        self.add = RedisInserts(link, places, crossing, wakeups, usual_depth).add
        self.blocking: RedisBlockingInserts | None = None
        if link.direct is not None:
            alone = RedisInserts(link, places, crossing, wakeups, usual_depth, link.direct)
            self.blocking = RedisBlockingInserts(link, alone)
        self.claim = RedisClaims(link, places, self._committing).claim
        self.commit_each = self._committing.commit_each
        self.find = RedisTaskQueries(link, places).find

    async def commit(self, *changes: Change) -> None:
        await self._committing.commit(changes)

    async def get(self, task_ids: Sequence[str]) -> list[Task | None]:
        found = await read_records(self._link, self._places, task_ids)
        return [found.get(task_id) for task_id in task_ids]

    async def report_progress(self, task_id: str, run_id: str, progress: Raw) -> None:
        request = {"id": task_id, "run_id": run_id, "progress": as_text(bytes(progress))}
        guess = self._places.guess(task_id)  # the worker has claimed the task, so its partition is cached
        partition = await self._places.of(task_id) if guess is None else guess
        if not await self._link.run("report_progress", partition, request):
            raise StaleLease(f"run {run_id} no longer holds task {task_id}; its progress was not stored")
