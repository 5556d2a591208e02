"""New tasks meet the guard before they are stored: let through, refused, or held until people have agreed."""

from collections.abc import Sequence

from msgspec import structs

from ade.core.approvals.deciding import born_held
from ade.core.approvals.opening import review_of
from ade.core.approvals.refusals import Denied
from ade.core.approvals.rulebook import Rulebook, passes
from ade.core.approvals.subjects import resources_of
from ade.core.events import Event
from ade.core.guard import Case, Occasion, Ruling, Verdict, rule_on
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.governance.approvals.situation import Situation, demanded, load_situation, risk_of
from ade.ports import Stores
from ade.queue.ids import fresh_id
from ade.queue.payloads import Payloads

GUARD_DENIED = "guard.denied"


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
    review = review_of(task)
    if ruling.verdict is Verdict.DEMAND:
        named = (*review.policies, ruling.policy) if ruling.policy else review.policies
        review = structs.replace(review, policies=tuple(dict.fromkeys(named)), reason=ruling.reason)
    now = task.created_at or stores.clock.now()
    if review.has_preview:
        frozen = structs.replace(review, preview_id=fresh_id(now))
        return structs.replace(task, status=Status.SUBMITTED, review=frozen)
    if ruling.verdict is Verdict.ALLOW and not review.policies:
        return task
    asked = structs.replace(task, review=review)
    verdict = await demanded(stores, asked, situation, reason=review.reason)
    return born_held(asked, verdict.demand, situation.people, now=now)


async def ruled(stores: Stores, payloads: Payloads, task: Task, situation: Situation, occasion: Occasion) -> Ruling:
    """What the guard says of a task."""
    rulebook = situation.rulebook
    if not rulebook.guards(occasion):
        return Ruling(verdict=Verdict.ALLOW)
    needs_score = any(rule.from_score is not None for rule in rulebook.guard)
    score = (await risk_of(stores, task, situation, task.preview)).score if needs_score else None
    arguments = await payloads.load(task.args)  # what a reference stands for, too
    case = Case(name=task.name, arguments=arguments, resources=resources_of(task), tags=task.tags, score=score)
    return rule_on(rulebook, case, occasion)


async def tell_denied(stores: Stores, task: Task, ruling: Ruling, occasion: Occasion, tool: str | None = None) -> None:
    """A refusal leaves its mark, though it stores no task."""
    payload: dict[str, object] = {
        "name": task.name,
        "occasion": occasion,
        "rule": ruling.rule,
        "reason": ruling.reason,
        **({} if tool is None else {"tool": tool}),
    }
    event = Event(type=GUARD_DENIED, at=stores.clock.now(), actor=task.author_id, payload=payload)
    await stores.documents.write([], [event])
