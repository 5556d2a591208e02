"""New tasks meet the guard before they are stored: let through, refused, or held until people have agreed."""

from collections.abc import Sequence

from msgspec import structs

from ade.core.approvals.deciding import born_held
from ade.core.approvals.records import Review, StartMode
from ade.core.approvals.refusals import Denied
from ade.core.approvals.rulebook import Rulebook, passes
from ade.core.guard import Occasion, Verdict
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.governance.approvals.guarding import demanding, ruled, tell_denied
from ade.governance.approvals.situation import Situation, demanded, load_situation
from ade.ports import Stores
from ade.queue.ids import fresh_id
from ade.queue.payloads import Payloads


async def admitted(stores: Stores, payloads: Payloads, tasks: Sequence[Task], rulebook: Rulebook) -> list[Task]:
    """What to store in place of these tasks, in the same order; `follow_up` does the rest once they are stored.

    Raises Denied, InvalidPolicy, InvalidSubject; then none of them may be stored.
    """
    if all(passes(task, rulebook) for task in tasks):
        return list(tasks)
    situation = structs.replace(await load_situation(stores), rulebook=rulebook)
    stored = []
    for task in tasks:
        held = task
        if not passes(task, rulebook):
            kept = structs.replace(task, args=await payloads.spill(task.id, "args", task.args))
            held = await _admitted(stores, payloads, kept, situation)
        stored.append(held)
    return stored


async def _admitted(stores: Stores, payloads: Payloads, task: Task, situation: Situation) -> Task:
    ruling = await ruled(stores, payloads, task, situation, Occasion.ENQUEUE)
    if ruling.verdict is Verdict.DENY:
        await tell_denied(stores, task, ruling, Occasion.ENQUEUE)
        raise Denied(f"{task.name} was not stored: {ruling.reason or 'a guard rule forbids it'} (rule {ruling.rule})")
    later = await ruled(stores, payloads, task, situation, Occasion.RUN)
    review = demanding(task, (ruling, later))
    now = task.created_at or stores.clock.now()
    if review.has_preview:
        return _to_be_assessed(task, structs.replace(review, preview_id=fresh_id(now)))
    if Verdict.DEMAND not in (ruling.verdict, later.verdict) and not review.policies:
        return task
    asked = structs.replace(task, review=review)
    demand = await demanded(stores, asked, situation, reason=review.reason)
    if demand.is_automatic and (review.start is StartMode.BY_HAND or review.not_before is not None):
        return _to_be_assessed(task, review)  # it does not stand in line yet, though nobody is asked
    return born_held(asked, demand, situation.people, now=now)


def _to_be_assessed(task: Task, review: Review) -> Task:
    return structs.replace(task, status=Status.SUBMITTED, review=review)
