"""The locks that tasks name: which request stands for a run of a task."""

from ade.core.lifecycle import Status
from ade.core.locks.asking import DEFAULT_TTL_MS, ask
from ade.core.locks.records import LockRequest
from ade.core.records import Task

LOOK_AGAIN_MS = 300_000  # of a task that waits: normally it is recalled as soon as it is let in
STANDS_NOWHERE_MS = 15_000  # one that could not even get into the line
_BEGUN = frozenset({Status.RUNNING, Status.STALLED})


def request_id(task: Task) -> str:
    """Of the run that is under way, or of the next one.

    A run that waits for its locks does not count, so the next one asks under the same id and has its place in line. One
    that went silent does count: whoever takes over asks anew, and gets tokens that are higher.
    """
    attempt = task.attempt if task.status in _BEGUN else task.attempt + 1
    return f"{task.id}.{task.generation}.{attempt}"


def request_of(task: Task, *, ttl_ms: int = DEFAULT_TTL_MS) -> LockRequest:
    """What a run of this task must be granted before it begins."""
    request = request_id(task)
    return ask(
        id=request,
        owner=f"task:{task.id}",
        scope=request,
        wanted=task.locks,
        priority=task.priority,
        purpose=task.name,
        task_id=task.id,
        ttl_ms=ttl_ms,
        unattended=True,
    )
