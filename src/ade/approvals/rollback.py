"""Rollbacks: tasks that undo a finished task, linked to it and enqueued once."""

import hashlib
from collections.abc import Sequence

from msgspec import Raw

from ade.accounts.model import SYSTEM, Permission
from ade.accounts.users import permitted
from ade.approvals.model import PastRun
from ade.approvals.review_requests import review_of
from ade.approvals.submission import enqueue_guarded
from ade.errors import AdeError, IllegalTransition, StoreError, UnknownName
from ade.events.model import Event
from ade.logs import Log
from ade.stores.ports import Stores, TaskQuery
from ade.tasks.admission import ROLLBACK_SUFFIX, admit
from ade.tasks.changes import Change
from ade.tasks.enqueue import fresh_id
from ade.tasks.lifecycle import FINAL, Status
from ade.tasks.model import AfterFailure, Task
from ade.tasks.payloads import Payloads
from ade.tasks.service import get, last_run

AUTOMATIC = "automatic"
ROLLBACK_NOT_STORED = "rollback.not_stored"
_LONGEST_REASON = 500
log = Log("ade.approvals")
NEEDLESS = Raw(b'"nothing to undo"')  # the result of a rollback that did nothing
_MOST_ROLLBACKS = 500  # of one task: one for each generation


async def roll_back(stores: Stores, payloads: Payloads, task_id: str, *, actor: str | None = None) -> Task:
    """Enqueue the rollback of a finished task; repeated calls return the same rollback.

    It undoes the last run that began, whatever was edited since, and passes the guard like any other task. Raises
    IllegalTransition for a task that never ran or has not finished, UnknownName if no rollback is known, Denied, and
    NotPermitted.
    """
    task = await get(stores, task_id)
    if actor is not None and actor not in (task.author_id, *review_of(task).editors):
        await permitted(stores, actor, Permission.OPERATE, "roll back tasks of others")
    ran = await last_run(stores, task) if task.status in FINAL else None
    if ran is None:
        raise IllegalTransition(
            f"task {task.id} is {task.status}: only one that has run and ended can be rolled back; cancel it first"
        )
    if not any(each.has_rollback for each in await stores.workers.definitions() if each.name == task.name):
        raise UnknownName(f"no worker knows how to roll back {task.name}; give the task a function by @task.rollback")
    rollback = await _rollback_of(stores, payloads, task, ran, author=actor)
    if (earlier := await _earlier(stores, payloads, task, rollback)) is not None:
        return earlier
    [stored] = await enqueue_guarded(stores, payloads, [rollback])
    return stored


async def prepare_rollbacks(stores: Stores, payloads: Payloads, changes: Sequence[Change]) -> None:
    """Store the automatic rollbacks of tasks that are about to fail permanently.

    Each rollback is stored first and depends on its task, so that a crash in between leaves no failure without a
    rollback. A rollback that is refused is logged and not stored; its task fails all the same.
    """
    for change in changes:
        if change.before.rollback != AUTOMATIC or not _ends_badly(change):
            continue
        ran = await _ran(stores, change)
        if ran is not None:
            rollback = await _rollback_of(stores, payloads, change.after, ran, waits=True)
            if change.before.status is not Status.RUNNING and await _earlier(stores, payloads, change.after, rollback):
                continue
            try:
                await enqueue_guarded(stores, payloads, [rollback])
            except StoreError:
                raise
            except AdeError as error:  # it must not stop its task, or the tasks of others in the same batch
                await _log_not_stored(stores, rollback, error)


async def _log_not_stored(stores: Stores, rollback: Task, error: AdeError) -> None:
    payload: dict[str, object] = {
        "task": rollback.parent_id,
        "name": rollback.name,
        "code": error.code,
        "reason": str(error)[:_LONGEST_REASON],
    }
    event = Event(type=ROLLBACK_NOT_STORED, at=stores.clock.now(), payload=payload)
    await stores.documents.write([], [event])
    log.warning("rollback.not_stored", task=rollback.parent_id, name=rollback.name, error=str(error))


def _ends_badly(change: Change) -> bool:
    """Whether a task ends without success."""
    return change.before.status not in FINAL and change.after.status in (Status.FAILED, Status.REJECTED)


async def _ran(stores: Stores, change: Change) -> PastRun | None:
    """Return what the task last ran with. The run that fails now is not in the log yet. A rejected task might have run
    up to a step, or failed before it needed another approval; what an earlier generation did was rolled back then."""
    task = change.before
    is_refused = any(event.payload.get("has_begun") is False for event in change.events)
    if task.status is Status.RUNNING and not is_refused:
        return PastRun(args=task.args, digest=task.digest, generation=task.generation)
    ran = await last_run(stores, task)
    was_waiting = change.after.status is Status.REJECTED or task.status not in (Status.RUNNING, Status.STALLED)
    is_old = ran is not None and was_waiting and ran.generation != task.generation
    return None if is_old else ran


async def _rollback_of(
    stores: Stores, payloads: Payloads, task: Task, ran: PastRun, *, author: str | None = None, waits: bool = False
) -> Task:
    args, way = await payloads.load(ran.args), AUTOMATIC if waits else "manual"
    digest = hashlib.sha256(bytes(args)).hexdigest()[:16]
    rollback = Task(
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
        resources=task.resources,
        tags=task.tags,
        source=SYSTEM,
        author_id=author or task.author_id,
        idempotency_key=f"rollback:{task.id}:{ran.generation}:{way}:{digest}",
        description=f"rollback of {task.id}" + (f", approved as {ran.digest[:12]}" if ran.digest else ""),
    )
    return admit(rollback, now=stores.clock.now())


async def _earlier(stores: Stores, payloads: Payloads, task: Task, rollback: Task) -> Task | None:
    """Return the rollback of the same run that was stored before, automatically or by request; None if there is none,
    or it had nothing to undo."""
    query = TaskQuery(parent_id=task.id, name=rollback.name, oldest_first=True, limit=_MOST_ROLLBACKS)
    for each in (await stores.tasks.find(query)).tasks:
        if _run_of(each) != _run_of(rollback):
            continue
        waits = task.id in each.depends_on
        if not waits or not (
            task.status is Status.COMPLETED
            or (each.result is not None and bytes(each.result) == bytes(NEEDLESS))
            or (not each.is_final and await is_needless(stores, payloads, each))
        ):
            return each
    return None


def _run_of(rollback: Task) -> tuple[str, ...]:
    """Return the task, generation, and digest of the arguments in the key, without how the rollback came about."""
    parts = (rollback.idempotency_key or "").split(":")
    return (*parts[:-2], parts[-1])


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
