"""New tasks meet the guard before they are stored: let through, refused, or held until people have agreed."""

import asyncio
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, structs

from ade.approvals.decisions import born_held
from ade.approvals.digest import resources_of
from ade.approvals.errors import Denied
from ade.approvals.guard import GuardCase, GuardOccasion, GuardRuleSource, GuardRulesVerdict, GuardRuling, rule_on
from ade.approvals.model import Review, StartMode
from ade.approvals.repository import ApprovalInputs, demanded, load_situation, risk_of
from ade.approvals.review_requests import review_of
from ade.approvals.rulebook import Rulebook, passes
from ade.events.model import Event
from ade.stores.ports import Stores
from ade.tasks.enqueue import fresh_id
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.payloads import Payloads

# The guard looks at every word of the arguments. Large ones it looks at on a thread, one after the other: whoever
# sends them waits for that himself, and keeps nobody else waiting.


LARGE = 65_536  # bytes
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def apply_guard(rulebook: GuardRuleSource, case: GuardCase, occasion: GuardOccasion) -> GuardRuling:
    """What the first rule that holds says. Never raises."""
    if _size(case) <= LARGE:
        return rule_on(rulebook, case, occasion)
    async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return await asyncio.to_thread(rule_on, rulebook, case, occasion)


def _size(case: GuardCase) -> int:
    if isinstance(case.given, Raw):
        return len(case.given)
    try:
        return len(msgspec.json.encode(case.given))
    except (TypeError, ValueError):  # no JSON, which the guard itself refuses
        return 0


# What the guard says of tasks, and what becomes of its word.


GUARD_DENIED = "guard.denied"


async def ruled(
    stores: Stores, payloads: Payloads, task: Task, situation: ApprovalInputs, occasion: GuardOccasion
) -> GuardRuling:
    """What the guard says of a task."""
    rulebook = situation.rulebook
    if not rulebook.guards(occasion):
        return GuardRuling(verdict=GuardRulesVerdict.ALLOW)
    needs_score = any(rule.from_score is not None for rule in rulebook.guard)
    score = (await risk_of(stores, task, situation, task.preview)).score if needs_score else None
    arguments = await payloads.load(task.args)  # what a reference stands for, too
    case = GuardCase(name=task.name, arguments=arguments, resources=resources_of(task), tags=task.tags, score=score)
    return await apply_guard(rulebook, case, occasion)


async def log_denied(
    stores: Stores, task: Task, ruling: GuardRuling, occasion: GuardOccasion, tool: str | None = None
) -> None:
    """A refusal leaves its mark, be it that no task was stored."""
    payload: dict[str, object] = {
        "name": task.name,
        "occasion": occasion,
        "rule": ruling.rule,
        "reason": ruling.reason,
        **({} if tool is None else {"tool": tool}),
        **({} if occasion is GuardOccasion.ENQUEUE else {"task": task.id}),
    }
    event = Event(type=GUARD_DENIED, at=stores.clock.now(), actor=task.author_id, payload=payload)
    await stores.documents.write([], [event])


def demanding(task: Task, rulings: Iterable[GuardRuling]) -> Review:
    """The review of a task, with all that these rulings demand."""
    review = review_of(task)
    asking = [ruling for ruling in rulings if ruling.verdict is GuardRulesVerdict.DEMAND]
    named = (*review.policies, *(ruling.policy for ruling in asking if ruling.policy is not None))
    reason = next((ruling.reason for ruling in asking if ruling.reason), review.reason)
    return structs.replace(review, policies=tuple(dict.fromkeys(named)), reason=reason)


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


async def _admitted(stores: Stores, payloads: Payloads, task: Task, situation: ApprovalInputs) -> Task:
    ruling = await ruled(stores, payloads, task, situation, GuardOccasion.ENQUEUE)
    if ruling.verdict is GuardRulesVerdict.DENY:
        await log_denied(stores, task, ruling, GuardOccasion.ENQUEUE)
        raise Denied(f"{task.name} was not stored: {ruling.reason or 'a guard rule forbids it'} (rule {ruling.rule})")
    later = await ruled(stores, payloads, task, situation, GuardOccasion.RUN)
    review = demanding(task, (ruling, later))
    now = task.created_at or stores.clock.now()
    if review.has_preview:
        return _to_be_assessed(task, structs.replace(review, preview_id=fresh_id(now)))
    if GuardRulesVerdict.DEMAND not in (ruling.verdict, later.verdict) and not review.policies:
        return task
    asked = structs.replace(task, review=review)
    demand = await demanded(stores, asked, situation, reason=review.reason)
    if demand.is_automatic and (review.start is StartMode.BY_HAND or review.not_before is not None):
        return _to_be_assessed(task, review)  # it does not stand in line yet, though nobody is asked
    return born_held(asked, demand, situation.people, now=now)


def _to_be_assessed(task: Task, review: Review) -> Task:
    return structs.replace(task, status=Status.SUBMITTED, review=review)
