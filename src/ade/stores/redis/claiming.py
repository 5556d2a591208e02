"""Claims: which tasks a worker gets."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
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
            tasks = [task for _, task in await self._claim_from(partitions[0], request, request.run_ids[0])]
        else:
            tasks = await self._claim_among(partitions, request)
        self._places.remember(tasks)
        return tasks

    async def _claim_among(self, partitions: Sequence[int], request: ClaimRequest) -> list[Task]:
        """Look at the heads of all, then ask each for its share of what comes first.

        What limits keep back was counted too, so whoever gets too little looks once more.
        """
        claimed: list[Claimed] = []
        open_to = list(partitions)
        left = list(request.run_ids)
        for number in count():
            request_id = f"{request.run_ids[0]}.{number}"
            heads = await self._peek(open_to, request, request_id, len(left)) if left else {}
            shares = _shares(heads, len(left))
            if not shares:
                break
            parts: list[tuple[int, ClaimRequest]] = []
            for partition, share in shares.items():
                parts.append((partition, structs.replace(request, run_ids=left[:share])))
                left = left[share:]
            answers = await asyncio.gather(*(self._claim_from(*part, request_id) for part in parts))
            for (partition, part), got in zip(parts, answers, strict=True):
                claimed += got
                left += [run_id for run_id in part.run_ids if run_id not in {task.run_id for _, task in got}]
                if len(got) < len(part.run_ids):
                    open_to.remove(partition)  # it has no more for this worker
        claimed.sort(key=lambda each: (each[1].priority, each[0]))
        return [task for _, task in claimed]

    async def _peek(
        self, partitions: Sequence[int], request: ClaimRequest, request_id: str, limit: int
    ) -> dict[int, list[Any]]:
        """What a claim would come upon first in each partition."""
        question = {
            **self._timing(),
            "id": request_id,
            "names": sorted(request.names),
            "queues": request.queues,
            "limit": limit,
        }
        heads = await asyncio.gather(*(self._link.run("peek", each, question) for each in partitions))
        return dict(zip(partitions, heads, strict=True))

    async def _claim_from(self, partition: int, request: ClaimRequest, request_id: str) -> list[Claimed]:
        """Ask until the partition has given what it can; one call looks at a bounded number of tasks."""
        while True:
            more, *records = await self._link.run("claim", partition, self._packed(request_id, request))
            claimed = [
                (seq_of(record), task)
                for record in records
                if (task := await self._read(partition, record)) is not None
            ]
            if claimed or not more:
                return claimed

    def _packed(self, request_id: str, request: ClaimRequest) -> dict[str, Any]:
        return {
            **self._timing(),
            "id": request_id,
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


def _shares(heads: Mapping[int, list[Any]], wanted: int) -> dict[int, int]:
    """How many to take from each partition, so that the most urgent and oldest of all go first."""
    before = {partition: int(found[0]) for partition, found in heads.items() if found[0]}
    if before:  # the same request again, after an unknown outcome
        return before
    ranked = sorted(
        (priority, int(seq), partition)
        for partition, found in heads.items()
        for priority, seq in zip(found[1::2], found[2::2], strict=True)
    )
    return Counter(partition for _, _, partition in ranked[:wanted])
