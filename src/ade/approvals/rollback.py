"""Rollbacks: tasks that undo a finished task, linked to it and enqueued once."""

import hashlib
from collections.abc import Sequence

from ade.accounts.model import SYSTEM, Permission
from ade.accounts.users import permitted
from ade.approvals.model import AFTER_THE_FACT
from ade.approvals.review_requests import review_of
from ade.errors import IllegalTransition, UnknownName
from ade.failures import FailureKind
from ade.stores.ports import Stores
from ade.tasks.admission import ROLLBACK_SUFFIX
from ade.tasks.changes import Change
from ade.tasks.enqueue import enqueue, fresh_id
from ade.tasks.lifecycle import FINAL, Status
from ade.tasks.model import AfterFailure, Task
from ade.tasks.payloads import Payloads
from ade.tasks.service import get

AUTOMATIC = "automatic"
_PAGE = 1_000
_REPLAYED = "task.replayed"
_AFTER_A_RUN = frozenset({"task.retry_scheduled", "task.released", "task.stalled"})


async def roll_back(stores: Stores, payloads: Payloads, task_id: str, *, actor: str | None = None) -> Task:
    """Enqueue the rollback of a finished task; repeated calls return the same rollback.

    Raises IllegalTransition for a task that never ran or has not finished, UnknownName if no rollback is known, and
    NotPermitted.
    """
    task = await get(stores, task_id)
    if actor is not None and actor not in (task.author_id, *review_of(task).editors):
        await permitted(stores, actor, Permission.OPERATE, "roll back tasks of others")
    if task.status not in FINAL or not _has_run(task):
        raise IllegalTransition(
            f"task {task.id} is {task.status}: only one that has run and ended can be rolled back; cancel it first"
        )
    if not any(each.has_rollback for each in await stores.workers.definitions() if each.name == task.name):
        raise UnknownName(f"no worker knows how to roll back {task.name}; give the task a function by @task.rollback")
    [stored] = await enqueue(stores, payloads, [await _rollback_of(payloads, task, author=actor)])
    return stored


async def prepare_rollbacks(stores: Stores, payloads: Payloads, changes: Sequence[Change]) -> None:
    """Store the automatic rollbacks of tasks that are about to fail permanently.

    Each rollback is stored first and depends on its task, so that a crash in between leaves no failure without a
    rollback.
    """
    failing = [change for change in changes if change.before.rollback == AUTOMATIC and _ends_badly(change)]
    to_undo = [change.after for change in failing if not await _never_began(stores, change)]
    if to_undo:
        await enqueue(stores, payloads, [await _rollback_of(payloads, task, waits=True) for task in to_undo])


def _ends_badly(change: Change) -> bool:
    """Whether a task that ran ends without success. A rejected one has done something only if it reached a step."""
    status = change.after.status
    if change.before.status in FINAL or not _has_run(change.after):
        return False
    return status is Status.FAILED or (status is Status.REJECTED and _waited_at_a_step(change.before))


async def _never_began(stores: Stores, change: Change) -> bool:
    """Whether its only run was rejected before the handler was called. Runs that did not count are only in the log."""
    error, task = change.after.error, change.before
    was_refused = error is not None and error.kind in (FailureKind.DENIED, FailureKind.DEADLINE_PASSED)
    if not was_refused or task.status is not Status.RUNNING or _waited_at_a_step(task):
        return False
    began, after = False, 0
    while events := await stores.events.read(after, _PAGE, task_id=task.id):
        for event in events:
            began = event.type != _REPLAYED and (began or event.type in _AFTER_A_RUN)
        after = events[-1].seq
    return not began


def _waited_at_a_step(task: Task) -> bool:
    """Whether approval was requested in the middle of a run, so that part of the work was done."""
    return task.review is not None and any(gate.step not in ("", AFTER_THE_FACT) for gate in task.review.gates)


def _has_run(task: Task) -> bool:
    return task.started_at is not None


async def _rollback_of(payloads: Payloads, task: Task, *, author: str | None = None, waits: bool = False) -> Task:
    args, way = await payloads.load(task.args), AUTOMATIC if waits else "manual"
    digest = hashlib.sha256(bytes(args)).hexdigest()[:16]  # an edited draft needs another rollback
    return Task(
        id=fresh_id(task.updated_at),
        name=f"{task.name}{ROLLBACK_SUFFIX}",
        queue=task.queue,
        args=args,
        priority=task.priority,
        timeout_ms=task.timeout_ms,
        parent_id=task.id,
        depends_on=(task.id,) if waits else (),
        after_failure=AfterFailure.RUN,
        locks=task.locks,
        needs=task.needs,
        source=SYSTEM,
        author_id=author or task.author_id,
        idempotency_key=f"rollback:{task.id}:{task.generation}:{way}:{digest}",
        description=f"rollback of {task.id}",
    )


async def is_needless(stores: Stores, payloads: Payloads, rollback: Task) -> bool:
    """Whether a prepared rollback has nothing to undo: its task completed on another worker after all, or was edited
    before it ran."""
    if rollback.parent_id is None or rollback.parent_id not in rollback.depends_on:
        return False
    [original] = await stores.tasks.get([rollback.parent_id])
    if original is None:
        return False
    ran, undone = await payloads.load(original.args), await payloads.load(rollback.args)
    return original.status is Status.COMPLETED or bytes(ran) != bytes(undone)
