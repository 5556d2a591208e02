"""TaskStore on Redis."""

from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Raw

from ade.core.change import Change
from ade.core.errors import StaleLease, StaleWrite
from ade.core.records import Task
from ade.ports import ClaimRequest, TaskPage, TaskQuery
from ade.stores.redis.adding import Adding
from ade.stores.redis.blocking import BlockingAdds
from ade.stores.redis.claiming import Claiming
from ade.stores.redis.codec import as_text
from ade.stores.redis.committing import Committing
from ade.stores.redis.crossing import Crossing
from ade.stores.redis.finding import Finding
from ade.stores.redis.hints import RedisHints
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.records import read_records
from ade.stores.redis.timing import Timing


class RedisTasks:
    def __init__(
        self,
        link: Link,
        places: Partitions,
        timing: Timing,
        hints: RedisHints | None = None,
        usual_depth: int | None = None,
    ) -> None:
        self._link = link
        self._places = places
        self._timing = timing
        crossing = Crossing(link, places, timing)
        self._committing = Committing(link, places, timing, crossing, hints)
        self._adding = Adding(link, places, timing, crossing, hints, usual_depth)
        self.blocking: BlockingAdds | None = None
        if link.direct is not None:
            alone = Adding(link, places, timing, crossing, hints, usual_depth, link.direct)
            self.blocking = BlockingAdds(link, alone)
        self._claiming = Claiming(link, places, timing, self._committing)
        self._finding = Finding(link, places)

    def add(self, tasks: Sequence[Task]) -> Coroutine[Any, Any, list[Task]]:
        return self._adding.add(tasks)

    async def claim(self, request: ClaimRequest) -> list[Task]:
        return await self._claiming.claim(request)

    async def commit(self, *changes: Change) -> None:
        await self._committing.commit(changes)

    async def commit_each(self, changes: Sequence[Change]) -> list[StaleWrite | None]:
        return await self._committing.commit_each(changes)

    async def get(self, task_ids: Sequence[str]) -> list[Task | None]:
        found = await read_records(self._link, self._places, task_ids)
        return [found.get(task_id) for task_id in task_ids]

    async def find(self, query: TaskQuery) -> TaskPage:
        return await self._finding.find(query)

    async def report_progress(self, task_id: str, run_id: str, progress: Raw) -> None:
        request = {**self._timing(), "id": task_id, "run_id": run_id, "progress": as_text(bytes(progress))}
        guess = self._places.guess(task_id)  # whoever runs a task knows where it is
        partition = await self._places.of(task_id) if guess is None else guess
        if not await self._link.run("progress", partition, request):
            raise StaleLease(f"run {run_id} no longer holds task {task_id}; its progress was not stored")
