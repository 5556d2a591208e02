"""New tasks come in: all of a call or none of it."""

from collections.abc import Sequence
from typing import Any

from ade.core.errors import AdeError, DependencyCycle, IdempotencyConflict, QueueFull, UnknownDependency
from ade.core.records import Task
from ade.core.task import creation_event
from ade.stores.redis.batching import Batcher
from ade.stores.redis.codec import new_task, task_of
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.timing import Timing

_MOST = 500  # tasks in one call of the script, unless one caller brings more


class Adding:
    def __init__(self, link: Link, places: Partitions, timing: Timing, usual_depth: int | None) -> None:
        self._link = link
        self._places = places
        self._timing = timing
        self._usual_depth = usual_depth
        self._batchers = [self._batcher(partition) for partition in places.all]

    def _batcher(self, partition: int) -> Batcher[Sequence[Task], list[Task]]:
        async def send(calls: list[Sequence[Task]]) -> list[list[Task] | Exception]:
            return await self._send(partition, calls)

        return Batcher(send, weigh=len, most=_MOST)

    async def add(self, tasks: Sequence[Task]) -> list[Task]:
        if not tasks:
            return []
        stored = await self._batchers[self._places.of_queue(tasks[0].queue)].ask(tasks)
        self._places.remember(stored)
        return stored

    async def _send(self, partition: int, calls: list[Sequence[Task]]) -> list[list[Task] | Exception]:
        groups = [[new_task(task, [creation_event(task)]) for task in tasks] for tasks in calls]
        request = {**self._timing(), "groups": groups, "usual_depth": self._usual_depth or False}
        answers = await self._link.run("add", partition, request)
        return [await self._answer(partition, *pair) for pair in zip(calls, answers, strict=True)]

    async def _answer(self, partition: int, tasks: Sequence[Task], answer: list[Any]) -> list[Task] | Exception:
        if answer[0] != b"stored":
            return await self._refusal(partition, tasks, answer)
        by_id = {task.id: task for task in tasks}
        return [task_of(each) if isinstance(each, list) else by_id[each.decode()] for each in answer[1]]

    async def _refusal(self, partition: int, tasks: Sequence[Task], answer: list[Any]) -> AdeError:
        match answer[1:]:
            case [b"conflict", task_id, earlier]:
                task = next(task for task in tasks if task.id == task_id.decode())
                return IdempotencyConflict(
                    f"idempotency key {task.idempotency_key!r} of {task.name!r} was used for task {earlier.decode()}"
                    " with other arguments; nothing was stored"
                )
            case [b"unknown_dependency", task_id]:
                return UnknownDependency(
                    f"task {task_id.decode()!r} named in `after` does not exist; nothing was stored"
                )
            case [b"ring", task_id]:
                return DependencyCycle(
                    f"task {task_id.decode()} would wait for itself, because their idempotency keys make one task of"
                    " two; nothing was stored"
                )
            case [b"full", queue, count, room, limit]:
                return await self._full(partition, queue.decode(), count, limit - room, limit)
        raise AssertionError(f"the script add answered {answer!r}")

    async def _full(self, partition: int, queue: str, count: int, depth: int, limit: int) -> QueueFull:
        """Say when to come back: as long as the excess takes at the pace of the last minute."""
        finished = await self._link.run("finished_since", partition, {**self._timing(), "queue": queue})
        excess = depth + count - limit
        retry_after = min(max(excess * 60 / finished, 1.0), 300.0) if finished else 30.0
        return QueueFull(
            f"queue {queue!r} holds {depth} unfinished tasks and takes at most {limit}; {count} more do not fit."
            f" Try again in {retry_after:.0f} s",
            retry_after=retry_after,
        )
