"""Blobs whose task does not exist: who put them died before writing the record, or who pruned it before they went."""

from collections.abc import Iterable

from ade.stores.redis.crossing import Crossing
from ade.stores.redis.link import Link
from ade.stores.redis.records import pairs
from ade.stores.redis.timing import Timing, moment_of

_PORTION = 500


class Orphans:
    def __init__(self, link: Link, crossing: Crossing, timing: Timing) -> None:
        self._link = link
        self._crossing = crossing
        self._timing = timing

    async def remove(self, older_than_ms: int, limit: int) -> int:
        """Look at all tasks with blobs that were not looked at for so long. Answers how many did not exist."""
        removed = 0
        for partition in range(self._link.partitions):
            now = await moment_of(self._link, self._timing, partition)
            while removed < limit and (seen := await self._old(partition, now - older_than_ms)):
                removed += await self._sift(partition, seen, now)
        return removed

    async def _old(self, partition: int, moment: int) -> dict[str, int]:
        """Task ids of blobs that lie here, and when they were put or looked at."""
        key = f"{self._link.names[partition].prefix}blobs"
        command = ("ZRANGE", key, "-inf", f"({moment}", "BYSCORE", "LIMIT", 0, _PORTION, "WITHSCORES")
        [listed] = await self._link.ask(partition, command)
        return {task_id.decode(): int(float(put_at)) for task_id, put_at in pairs(listed)}

    async def _sift(self, partition: int, seen: dict[str, int], now: int) -> int:
        living = await self._existing(seen)
        missing = [task_id for task_id in seen if task_id not in living]
        if missing and self._link.partitions > 1:  # a draft may have been on its way from one to another
            await self._crossing.sweep()
            living |= await self._existing(missing)
        if living:
            key = f"{self._link.names[partition].prefix}blobs"
            marks = [word for task_id in living for word in (now, task_id)]
            await self._link.ask(partition, ("ZADD", key, "XX", "GT", *marks))
        blobs = [(task_id, seen[task_id]) for task_id in missing if task_id not in living]
        return int(await self._link.run("orphans", partition, {"blobs": blobs})) if blobs else 0

    async def _existing(self, task_ids: Iterable[str]) -> set[str]:
        """Those of the tasks that some partition has."""
        asked, found = list(task_ids), set[str]()
        for partition in range(self._link.partitions):
            prefix = self._link.names[partition].prefix
            there = await self._link.ask(partition, *(("EXISTS", f"{prefix}task:{each}") for each in asked))
            found.update(each for each, is_there in zip(asked, there, strict=True) if is_there)
        return found
