"""Tasks that waited for their locks and were let in: they stand in line again, to be claimed at once."""

from collections.abc import Iterable

from ade.core.lifecycle import Status
from ade.core.locks.of_tasks import request_id
from ade.core.locks.records import DEFAULT_NAMESPACE, LockRequest, by_namespace
from ade.core.records import Task
from ade.core.task import recall
from ade.ports import WORK, Stores

LIMIT = 200


async def recall_called(stores: Stores, limit: int = LIMIT) -> int:
    """May run anywhere, any time, twice at once. Locks of tasks that are over, or of a paused queue, go to the next.
    Answers how many."""
    called = await stores.locks.called(limit)
    if not called:
        return 0
    tasks = await stores.tasks.get([request.task_id or "" for request in called])
    now = stores.clock.now()
    changes, in_vain, unclaimed = [], list[LockRequest](), list[tuple[LockRequest, Task]]()
    for request, task in zip(called, tasks, strict=True):
        if task is None or not _is_for(request, task):
            in_vain.append(request)
        elif task.status is Status.PENDING and task.run_after > now:
            changes.append(recall(task, now=now))
        elif task.status is Status.PENDING:
            unclaimed.append((request, task))
    answers = await stores.tasks.commit_each(changes) if changes else []
    recalled = sum(answer is None for answer in answers)
    if recalled:
        stores.hints.ring(WORK)
    in_vain += await _of_paused_queues(stores, unclaimed)
    for namespace, ids in by_namespace(in_vain).items():
        await stores.locks.release(namespace, ids)
    return recalled + len(in_vain)


async def _of_paused_queues(stores: Stores, unclaimed: list[tuple[LockRequest, Task]]) -> list[LockRequest]:
    """Nobody may claim these, and meanwhile nobody else could have their locks. They ask again afterwards."""
    if not unclaimed:
        return []
    paused = {queue.name for queue in await stores.queues.list_queues() if queue.paused}
    return [request for request, task in unclaimed if task.queue in paused]


async def leave_lines(stores: Stores, tasks: Iterable[Task]) -> None:
    """These will not run any more, so they want nothing. A run that has begun lets go of its locks when it ends."""
    ids = [request_id(task) for task in tasks if task.locks]
    if ids:
        await stores.locks.release(DEFAULT_NAMESPACE, ids)


def _is_for(request: LockRequest, task: Task) -> bool:
    return not task.is_final and request_id(task) == request.id
