"""Mapping of queues, tasks, and keys to partitions.

All tasks of a queue are in one partition, so that its order and its limits are exact.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.topology import key_slot
from ade.tasks.model import Task

_MOST_REMEMBERED = 100_000


class Partitions:
    """Queues are mapped by a hash of their name. Tasks are found in a cache, or by asking every partition."""

    def __init__(self, link: RedisClient) -> None:
        self._link = link
        self._known: OrderedDict[str, int] = OrderedDict()

    @property
    def all(self) -> range:
        return range(self._link.partitions)

    def of_queue(self, queue: str) -> int:
        return 0 if self._link.partitions == 1 else key_slot(queue.encode()) % self._link.partitions

    def remember(self, tasks: Iterable[Task]) -> None:
        """Cache the partitions of tasks that were just read."""
        if self._link.partitions == 1:
            return
        for task in tasks:
            self._known[task.id] = self.of_queue(task.queue)
            self._known.move_to_end(task.id)
        while len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, task_ids: Iterable[str]) -> bool:
        """Remove tasks from the cache; return whether any of them was cached."""
        forgotten = [self._known.pop(task_id, None) for task_id in task_ids]
        return any(place is not None for place in forgotten)

    def guess(self, task_id: str) -> int | None:
        """The partition of a task if it is known without a request."""
        return 0 if self._link.partitions == 1 else self._known.get(task_id)

    async def of(self, task_id: str) -> int:
        """The partition of a task; 0 if the task does not exist."""
        return (await self.of_existing([task_id])).get(task_id, 0)

    async def of_existing(self, task_ids: Sequence[str]) -> dict[str, int]:
        """The same as `of_all`, but verify cached partitions: tasks are pruned, and edited drafts move."""
        remembered: dict[int, list[str]] = {}
        for task_id in task_ids if self._link.partitions > 1 else ():
            if (place := self._known.get(task_id)) is not None:
                remembered.setdefault(place, []).append(task_id)
        for partition, ids in remembered.items():
            self.forget(set(ids) - set(await self._there(partition, ids)))
        return await self.of_all(task_ids)

    async def existing(self, task_ids: Sequence[str]) -> set[str]:
        """Those of the tasks that exist. Raises if a partition that could contain one does not respond."""
        if self._link.partitions == 1:
            return set(await self._there(0, task_ids)) if task_ids else set()
        return set(await self.of_existing(task_ids))

    async def of_all(self, task_ids: Sequence[str]) -> dict[str, int]:
        """The partitions of tasks. With several partitions, missing tasks are left out unless they are cached."""
        if self._link.partitions == 1:
            return dict.fromkeys(task_ids, 0)
        found = {task_id: place for task_id in task_ids if (place := self._known.get(task_id)) is not None}
        unknown = [task_id for task_id in task_ids if task_id not in found]
        return found | await self._search(unknown) if unknown else found

    async def _search(self, task_ids: Sequence[str]) -> dict[str, int]:
        """Ask all partitions. Wait for an unreachable one only if the others do not have all tasks."""
        answers = await self._link.reach.each(
            self.all, lambda place, patience_s: self._there(place, task_ids, patience_s)
        )
        found = {task_id: place for place, there in answers.items() for task_id in there}
        for place in self.all:
            missing = [task_id for task_id in task_ids if task_id not in found]
            if missing and place not in answers:
                found.update(dict.fromkeys(await self._there(place, missing), place))
        return found

    async def _there(self, partition: int, task_ids: Sequence[str], patience_s: float | None = None) -> list[str]:
        """The given tasks that exist in a partition."""
        prefix = self._link.names[partition].prefix
        commands = [("EXISTS", f"{prefix}task:{each}") for each in task_ids]
        there = await self._link.ask(partition, *commands, patience_s=patience_s)
        return [each for each, is_there in zip(task_ids, there, strict=True) if is_there]


# Partitions of objects that are found by name, independent of a task or queue.


def partition_of_key(name: str, partitions: int) -> int:
    """Return the partition of an object by its name."""
    return 0 if partitions == 1 else key_slot(name.encode()) % partitions
