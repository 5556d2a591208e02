"""How a run of a worker behind HTTP ends: decided and written here, as ADE's own workers do it."""

import random
from typing import Any

from msgspec import Raw

from ade.core.change import Change
from ade.core.errors import InvalidResult
from ade.core.lifecycle import Status
from ade.core.locks.of_tasks import request_id
from ade.core.locks.records import DEFAULT_NAMESPACE
from ade.core.outcome import Deferred, Outcome, Succeeded
from ade.core.records import Task
from ade.core.task import settle
from ade.logs import Log
from ade.operations.kit import Office
from ade.ports import DONE, WORK
from ade.queue.coding import CODING_ERRORS, to_json, to_plain
from ade.queue.recalls import leave_lines
from ade.worker.failures import lock_lost
from ade.worker.undoing import prepare_rollbacks

log = Log("ade.work")


async def end(office: Office, task: Task, outcome: Outcome) -> Task:
    """The task as it is then. Raises StaleLease if the run has lost it meanwhile.

    What was done under locks is committed under them. A run that did nothing, or in vain, lets go first: the next one
    may ask under the same name as soon as the commit is there.
    """
    stores = office.stores
    if isinstance(outcome, Succeeded) and not await has_its_locks(office, task):
        outcome = lock_lost()
    if not isinstance(outcome, Succeeded | Deferred):  # who waits for locks keeps the place in their lines
        await leave_lines(stores, [task])
    change = settle(task, outcome, now=stores.clock.now(), dice=random.random())
    await prepare_rollbacks(stores, office.payloads, [change])
    [refusal] = await stores.tasks.commit_each([change])
    if isinstance(outcome, Succeeded):
        await leave_lines(stores, [task])
    known: dict[str, Any] = {"task_id": task.id, "attempt": task.attempt, "worker": task.worker_id, "verb": change.verb}
    if refusal is not None:
        log.warning("task.result_thrown_away", **known, reason=str(refusal))
        raise refusal
    log.info("task.handed_in", **known, status=change.after.status)
    await _ring(office, change)
    return change.after


async def has_its_locks(office: Office, task: Task) -> bool:
    """Also keeps them for another lease."""
    if not task.locks:
        return True
    [grant] = await office.stores.locks.renew(DEFAULT_NAMESPACE, [request_id(task)])
    return grant is not None and grant.is_granted


async def _ring(office: Office, change: Change) -> None:
    """Wake those who wait for its end, and those who may claim now: a limit has room again, or the task is due."""
    stores, after = office.stores, change.after
    if after.is_final:
        stores.hints.ring(DONE)
    is_due = after.status is Status.PENDING and after.run_after <= after.updated_at
    if is_due or change.before.concurrency_key is not None or await _has_limits(office, after.name):
        stores.hints.ring(WORK)


async def _has_limits(office: Office, name: str) -> bool:
    definitions = await office.stores.workers.definitions()
    return any(known.name == name and known.concurrency is not None for known in definitions)


async def succeeded(office: Office, task: Task, result: Raw) -> Succeeded:
    """With the result where it belongs. Raises PayloadTooLarge."""
    return Succeeded(await office.payloads.spill(task.id, f"{task.generation}.{task.attempt}.result", result))


def as_json(value: object) -> Raw:
    """Raises InvalidResult."""
    try:
        return to_json(to_plain(value))
    except CODING_ERRORS as error:
        raise InvalidResult(f"this cannot be kept as JSON: {error}") from None
