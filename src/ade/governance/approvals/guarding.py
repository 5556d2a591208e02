"""What the guard says of tasks, and what becomes of its word."""

from collections.abc import Iterable

from msgspec import structs

from ade.core.approvals.opening import review_of
from ade.core.approvals.records import Review
from ade.core.approvals.subjects import resources_of
from ade.core.events import Event
from ade.core.guard import Case, Occasion, Ruling, Verdict
from ade.core.records import Task
from ade.governance.approvals.judging import judge
from ade.governance.approvals.situation import Situation, risk_of
from ade.ports import Stores
from ade.queue.payloads import Payloads

GUARD_DENIED = "guard.denied"


async def ruled(stores: Stores, payloads: Payloads, task: Task, situation: Situation, occasion: Occasion) -> Ruling:
    """What the guard says of a task."""
    rulebook = situation.rulebook
    if not rulebook.guards(occasion):
        return Ruling(verdict=Verdict.ALLOW)
    needs_score = any(rule.from_score is not None for rule in rulebook.guard)
    score = (await risk_of(stores, task, situation, task.preview)).score if needs_score else None
    arguments = await payloads.load(task.args)  # what a reference stands for, too
    case = Case(name=task.name, arguments=arguments, resources=resources_of(task), tags=task.tags, score=score)
    return await judge(rulebook, case, occasion)


async def tell_denied(stores: Stores, task: Task, ruling: Ruling, occasion: Occasion, tool: str | None = None) -> None:
    """A refusal leaves its mark, be it that no task was stored."""
    payload: dict[str, object] = {
        "name": task.name,
        "occasion": occasion,
        "rule": ruling.rule,
        "reason": ruling.reason,
        **({} if tool is None else {"tool": tool}),
        **({} if occasion is Occasion.ENQUEUE else {"task": task.id}),
    }
    event = Event(type=GUARD_DENIED, at=stores.clock.now(), actor=task.author_id, payload=payload)
    await stores.documents.write([], [event])


def demanding(task: Task, rulings: Iterable[Ruling]) -> Review:
    """The review of a task, with all that these rulings demand."""
    review = review_of(task)
    asking = [ruling for ruling in rulings if ruling.verdict is Verdict.DEMAND]
    named = (*review.policies, *(ruling.policy for ruling in asking if ruling.policy is not None))
    reason = next((ruling.reason for ruling in asking if ruling.reason), review.reason)
    return structs.replace(review, policies=tuple(dict.fromkeys(named)), reason=reason)
