"""A worker for one task alone: it runs that one and what waits for it, and nobody else's."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from msgspec import structs

from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.core.task import release
from ade.ports import ClaimRequest, Stores, TaskQuery, TaskStore

_OTHERS = 32  # tasks of others that may stand before it in its queue
_LOOKED_AT = 100
_NOT_OURS = "it was claimed by a worker that is there for another task"
_WAITING = frozenset({Status.PENDING, Status.STALLED})


def only_for(stores: Stores, task_id: str) -> Stores:
    """The same stores for a worker, whose claims bring nothing but this task and what waits for it."""
    return replace(stores, tasks=cast(TaskStore, _OneTask(stores, task_id)))


class _OneTask:
    """Goes on to the real store, but for claims. The store gives what comes first: what is not ours goes back at once,
    and nothing is asked for while ours is not to be had."""

    def __init__(self, stores: Stores, task_id: str) -> None:
        self._real = stores.tasks
        self._clock = stores.clock
        self._id = task_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def claim(self, request: ClaimRequest) -> list[Task]:
        if not request.may_be_repeated and not await self._is_due(request):
            return []
        claimed = await self._real.claim(structs.replace(request, run_ids=_with_more(request.run_ids)))
        ours = [task for task in claimed if task.id == self._id or self._id in task.depends_on]
        kept = {task.id for task in ours[: len(request.run_ids)]}
        now = self._clock.now()
        back = [release(task, _NOT_OURS, now=now) for task in claimed if task.id not in kept]
        if back:
            await self._real.commit_each(back)
        return [task for task in claimed if task.id in kept]

    async def _is_due(self, request: ClaimRequest) -> bool:
        """Once it has ended, what waited for it may be."""
        [task] = await self._real.get([self._id])
        if task is None or not task.is_final:
            return task is not None and self._may_begin(task)
        queue = request.queues[0] if len(request.queues) == 1 else None
        newest = await self._real.find(TaskQuery(statuses=_WAITING, queue=queue, limit=_LOOKED_AT))
        return any(self._id in other.depends_on and self._may_begin(other) for other in newest.tasks)

    def _may_begin(self, task: Task) -> bool:
        return task.status in _WAITING and not task.waiting_on and task.run_after <= self._clock.now()


def _with_more(run_ids: Sequence[str]) -> list[str]:
    """The same ones for the same request: it may have to be repeated."""
    more = (hashlib.sha256(f"{run_ids[0]}:{number}".encode()).hexdigest()[:32] for number in range(_OTHERS))
    return [*run_ids, *more] if run_ids else []
