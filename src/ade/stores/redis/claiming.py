"""Claims: which tasks a worker gets."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from ade.core.outcome import Failed
from ade.core.records import Task
from ade.core.task import fail_run
from ade.ports import ClaimRequest
from ade.stores.redis.codec import UNREADABLE, Record, read_task, remains_of, seq_of
from ade.stores.redis.committing import Committing
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.timing import Timing

Claimed = tuple[int, Task]  # seq and task


class Claiming:
    def __init__(self, link: Link, places: Partitions, timing: Timing, committing: Committing) -> None:
        self._link = link
        self._places = places
        self._timing = timing
        self._committing = committing

    async def claim(self, request: ClaimRequest) -> list[Task]:
        if not request.run_ids or not request.names:
            return []
        partitions = sorted({self._places.of_queue(queue) for queue in request.queues}) or list(self._places.all)
        if len(partitions) == 1:
            tasks = [task for _, task in await self._claim_from(partitions[0], request)]
        else:
            tasks = await self._claim_among(partitions, request)
        self._places.remember(tasks)
        return tasks

    async def _claim_among(self, partitions: Sequence[int], request: ClaimRequest) -> list[Task]:
        """Look at the heads of all, then ask each for its share of what comes first.

        What limits keep back was counted too, so whoever gets too little looks once more.
        """
        claimed: list[Claimed] = []
        tried: set[int] = set()
        left = list(request.run_ids)
        while left:
            shares = await self._shares([each for each in partitions if each not in tried], request, len(left))
            if not shares:
                break
            parts: list[tuple[int, ClaimRequest]] = []
            for partition, share in shares.items():
                parts.append((partition, structs.replace(request, run_ids=left[:share])))
                left = left[share:]
            answers = await asyncio.gather(*(self._claim_from(*part) for part in parts))
            for (partition, part), got in zip(parts, answers, strict=True):
                claimed += got
                if len(got) < len(part.run_ids):
                    tried.add(partition)  # it has no more for this worker
                    left += part.run_ids[len(got) :]
        claimed.sort(key=lambda each: (each[1].priority, each[0]))
        return [task for _, task in claimed]

    async def _shares(self, partitions: Sequence[int], request: ClaimRequest, wanted: int) -> dict[int, int]:
        """How many to take from each partition, so that the most urgent and oldest of all go first."""
        question = {
            **self._timing(),
            "names": sorted(request.names),
            "queues": request.queues,
            "limit": wanted,
        }
        heads = await asyncio.gather(*(self._link.run("peek", each, question) for each in partitions))
        ranked = sorted(
            (priority, int(seq), partition)
            for partition, found in zip(partitions, heads, strict=True)
            for priority, seq in zip(found[::2], found[1::2], strict=True)
        )
        return Counter(partition for _, _, partition in ranked[:wanted])

    async def _claim_from(self, partition: int, request: ClaimRequest) -> list[Claimed]:
        """Ask until the partition has given what it can; one call looks at a bounded number of tasks."""
        while True:
            more, *records = await self._link.run("claim", partition, self._packed(request))
            claimed = [
                (seq_of(record), task)
                for record in records
                if (task := await self._read(partition, record)) is not None
            ]
            if claimed or not more:
                return claimed

    def _packed(self, request: ClaimRequest) -> dict[str, Any]:
        return {
            **self._timing(),
            "worker": request.worker_id,
            "run_ids": request.run_ids,
            "names": sorted(request.names),
            "queues": request.queues,
            "lease_ms": request.lease_ms,
        }

    async def _read(self, partition: int, record: Record) -> Task | None:
        """The claimed task. One that cannot be read is set aside; the others go out."""
        try:
            return read_task(record)
        except UNREADABLE as error:
            remains = remains_of(record, f"{type(error).__name__}: {error}; its bytes are in quarantine")
        assert remains.error is not None
        failure = fail_run(remains, Failed(remains.error), now=remains.updated_at, dice=0.5)
        await self._committing.quarantine(partition, failure)
        return None
