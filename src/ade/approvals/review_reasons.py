"""Explanations of why a task under review is not running: which votes are missing, and what to do about it."""

from ade.approvals.gates import unverified_writers
from ade.approvals.model import NO_AUTHOR, Gate, GateState, StartMode
from ade.approvals.repository import load_people
from ade.approvals.review_requests import review_of
from ade.stores.ports import Stores
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.reasons import Reason, listed, moment, span


async def why_in_review(stores: Stores, task: Task) -> Reason:
    """Explain a task that has not reached its queue yet."""
    match task.status:
        case Status.DRAFT:
            return _draft(task)
        case Status.SUBMITTED:
            return await _submitted(stores, task)
        case Status.APPROVED:
            return _approved(task, stores.clock.now())
    return await _reviewing(stores, task)


def _draft(task: Task) -> Reason:
    review = review_of(task)
    gate, errors = review.gate, list(review.errors)
    advice = f"`ade draft edit {task.id}` changes it, `ade submit {task.id}` submits it again"
    if gate is not None and gate.state is GateState.CHANGES_REQUESTED:
        asking = sorted({vote.voter for vote in gate.votes if vote.decision == "request_changes"})
        because = f": {listed(errors)}" if errors else ""
        return Reason(
            code="changes_requested",
            sentence=f"changes were asked for by {listed(asking)}{because}",
            facts={"asked_by": asking, "errors": errors, "approval": gate.id},
            advice=advice,
        )
    if errors:
        return Reason(
            code="sent_back",
            sentence=f"it was returned to its author: {'; '.join(errors)[:1_000]}",
            facts={"errors": errors},
            advice=advice,
        )
    advice = f"`ade submit {task.id}` submits it"
    return Reason(code="draft", sentence="it is still being written", advice=advice)


async def _submitted(stores: Stores, task: Task) -> Reason:
    review = review_of(task)
    if not review.has_preview or review.preview_id is None:
        return Reason(code="submitted", sentence="it is being validated and assessed; the next sweep continues")
    [preview] = await stores.tasks.get([review.preview_id])
    status = "to come" if preview is None else str(preview.status)
    return Reason(
        code="submitted",
        sentence=f"it is assessed once its preview is made by task {review.preview_id} ({status})",
        facts={"preview_id": review.preview_id, "preview": status},
        advice=f"`ade explain {review.preview_id}` shows what that waits for",
    )


async def _reviewing(stores: Stores, task: Task) -> Reason:
    gate, now = review_of(task).gate, stores.clock.now()
    if gate is None:
        return Reason(code="waits_for_approval", sentence="it waits for approval")
    people = await load_people(stores)
    standing = people.standing(gate, now)
    able, missing = list(standing.may_vote), list(standing.missing)
    facts: dict[str, object] = {
        "approval": gate.id,
        "digest": gate.digest,
        "may_answer": able,
        "missing": missing,
        "expires_at": gate.expires_at,
    }
    if standing.state is GateState.BLOCKED:
        unknown = unverified_writers(gate, people.directory)
        sentence = _unverified(gate, unknown, now) if unknown else _blocked(gate, able, missing, now)
        advice = _unverified_advice(task, unknown) if unknown else _blocked_advice(gate)
        return Reason(code="approval_blocked", sentence=sentence, facts=facts, advice=advice)
    step = f" before its step {gate.step!r} goes on" if gate.step else ""
    because = f" ({gate.reason})" if gate.reason else ""
    sentence = (
        f"it waits for approval{step}{because}: {'; '.join(missing)} missing, {listed(able) or 'no one'}"
        f" may answer; {_expiry(gate, now)}"
    )
    advice = f"`ade approvals approve {task.id}` answers"
    return Reason(code="waits_for_approval", sentence=sentence, facts=facts, advice=advice)


def _unverified(gate: Gate, unknown: tuple[str, ...], now: int) -> str:
    written = "it has no author" if NO_AUTHOR in unknown else f"{listed(list(unknown))}, who wrote it, has no account"
    why = "so authors could approve their own task"
    return f"it waits for approval, but {written}, {why}; {_expiry(gate, now)}"


def _unverified_advice(task: Task, unknown: tuple[str, ...]) -> str:
    if NO_AUTHOR in unknown:
        return f"`ade cancel {task.id}` cancels it; enqueue it again with an author"
    return f"`ade users add {unknown[0]}` creates the account, `ade cancel {task.id}` cancels the task"


def _blocked(gate: Gate, able: list[str], missing: list[str], now: int) -> str:
    hands = f" (involved and therefore excluded: {listed(sorted(gate.conflicts))})" if gate.conflicts else ""
    left = f"only {listed(able)} may still" if able else "no one is left who can"
    return f"it waits for approval, but {left}{hands}: {'; '.join(missing)} missing; {_expiry(gate, now)}"


def _blocked_advice(gate: Gate) -> str:
    roles = sorted({role for rule in gate.policy.rules for role in rule.roles})
    names = sorted({name for rule in gate.policy.rules for name in rule.users})
    account = f"NAME --role {roles[-1]}" if roles else names[0]
    return f"`ade users add {account}` creates an account that can"


def _expiry(gate: Gate, now: int) -> str:
    return f"it expires at {moment(gate.expires_at)}, {span(gate.expires_at - now)} from now"


def _approved(task: Task, now: int) -> Reason:
    review = review_of(task)
    gate = review.gate
    facts: dict[str, object] = {"start": review.start, "not_before": review.not_before, "not_after": review.not_after}
    sentence, advice = "it was approved and waits for its start", None
    if review.start is StartMode.BY_HAND:
        sentence = "it was approved and waits for a manual start"
        advice = f"`ade approvals start {task.id}` does"
    if review.not_before is not None and review.not_before > now:
        sentence += f"; it may begin from {moment(review.not_before)} on"
    until = [end for end in (review.not_after, gate.valid_until if gate is not None else None) if end is not None]
    if until:
        sentence += f"; the approval is good until {moment(min(until))}"
    return Reason(code="waits_for_start", sentence=sentence, facts=facts, advice=advice)
