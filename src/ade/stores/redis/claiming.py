"""Claims: which tasks a worker gets."""

from typing import Any

from ade.core.outcome import Failed
from ade.core.records import Task
from ade.core.task import fail_run
from ade.ports import ClaimRequest
from ade.stores.redis.codec import UNREADABLE, Record, read_task, remains_of
from ade.stores.redis.committing import Committing
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.timing import Timing


class Claiming:
    def __init__(self, link: Link, places: Partitions, timing: Timing, committing: Committing) -> None:
        self._link = link
        self._places = places
        self._timing = timing
        self._committing = committing

    async def claim(self, request: ClaimRequest) -> list[Task]:
        if not request.run_ids or not request.names:
            return []
        tasks = await self._claim_from(0, request)
        self._places.remember(tasks)
        return tasks

    async def _claim_from(self, partition: int, request: ClaimRequest) -> list[Task]:
        """Ask until the partition has given what it can; one call looks at a bounded number of tasks."""
        while True:
            more, *records = await self._link.run("claim", partition, self._packed(request))
            tasks = [task for record in records if (task := await self._read(partition, record)) is not None]
            if tasks or not more:
                return tasks

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
