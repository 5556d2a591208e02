"""The last look before a run: nothing that people must approve begins without their approval of exactly this."""

from collections.abc import Awaitable, Callable

from msgspec import structs

from ade.core.approvals.deciding import ANOTHER, TOO_LATE
from ade.core.approvals.refusals import InvalidPolicy, InvalidSubject
from ade.core.approvals.running import STALE, asked_anew, assessed_anew, clearance_of, previewed_anew
from ade.core.failure import FailureKind, TaskError
from ade.core.guard import Occasion, Verdict
from ade.core.outcome import Failed, Outcome
from ade.core.records import Task
from ade.governance.approvals.guarding import ruled, tell_denied
from ade.governance.approvals.situation import demanded, load_situation
from ade.logs import Log
from ade.ports import Stores
from ade.queue.ids import fresh_id
from ade.queue.payloads import Payloads

log = Log("ade.worker")
IsAsPreviewed = Callable[[], Awaitable[bool]]


async def last_look(
    stores: Stores, payloads: Payloads, task: Task, is_as_previewed: IsAsPreviewed | None = None
) -> Outcome | None:
    """None lets a run of this task begin; else how it ends before it began.

    `is_as_previewed` is there if its handler can preview it: whether a preview made now would see the same. Whatever
    cannot be judged does not run, and has not run.
    """
    try:
        return await _ruling(stores, payloads, task, is_as_previewed)
    except (InvalidSubject, InvalidPolicy) as error:
        return _refused(FailureKind.DENIED, error.detail)


async def _ruling(
    stores: Stores, payloads: Payloads, task: Task, is_as_previewed: IsAsPreviewed | None
) -> Outcome | None:
    now, situation = stores.clock.now(), await load_situation(stores)
    ruling = await ruled(stores, payloads, task, situation, Occasion.RUN)
    if ruling.verdict is Verdict.DENY:
        await tell_denied(stores, task, ruling, Occasion.RUN)
        return _refused(FailureKind.DENIED, f"a guard rule forbids it: {ruling.reason}")
    wanted = ruling.policy if ruling.verdict is Verdict.DEMAND else None
    clearance = clearance_of(task, situation.people.directory, now=now, policy=wanted)
    if clearance.is_good:
        if is_as_previewed is None or await is_as_previewed():
            return None
        return previewed_anew(task, STALE, preview_id=fresh_id(now), now=now)
    if clearance.reason == TOO_LATE:
        return _refused(FailureKind.DEADLINE_PASSED, TOO_LATE)
    reason = clearance.reason or ruling.reason
    if is_as_previewed is not None:
        return previewed_anew(task, reason or "it has not been approved", preview_id=fresh_id(now), now=now)
    own = task.review.policies if task.review is not None else ()
    if ruling.verdict is Verdict.ALLOW and not own and not clearance.reason:
        return None
    named = () if wanted is None else (wanted,)
    demand = await demanded(stores, task, situation, preview=task.preview, named=named, reason=reason)
    log.info("task.held", task_id=task.id, attempt=task.attempt, worker=task.worker_id, reason=reason)
    if demand.is_automatic and clearance.reason != ANOTHER:
        return assessed_anew(task, reason or "its policy lets it pass", now=now)
    by_people = structs.replace(demand, is_automatic=False)  # somebody has changed what had passed
    return asked_anew(task, by_people, situation.people, now=now)


def _refused(kind: FailureKind, message: str) -> Failed:
    return Failed(TaskError(kind=kind, type="Denied", message=message, retryable=False))
