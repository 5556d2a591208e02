"""All about the approval of one task, as it stands now."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from ade.core.approvals.gates import seats, uncounted
from ade.core.approvals.opening import People, review_of
from ade.core.approvals.records import AFTER_THE_FACT, Bypass, Comment, Decision, Gate, GateState, StartMode
from ade.core.approvals.risk import RiskLevel
from ade.core.lifecycle import Status
from ade.core.records import Task


class RuleView(Struct, frozen=True, kw_only=True):
    """So many out of these; `filled_by` are the people who have approved under it."""

    name: str
    needed: int
    users: list[str]
    roles: list[str]
    filled_by: list[str]


class VoteView(Struct, frozen=True, kw_only=True):
    voter: str
    for_whom: str  # empty: for himself
    decision: Decision
    at: int
    reason: str
    via: str
    why_not: str  # why it does not count; empty if it does


class StepView(Struct, frozen=True, kw_only=True):
    """An escalation: from when on these may answer too."""

    at: int
    users: list[str]
    roles: list[str]
    is_fired: bool
    is_early: bool  # fired before its time, because nobody else could answer


class GateView(Struct, frozen=True, kw_only=True):
    id: str
    state: GateState
    digest: str
    step: str
    about: Any = None
    reason: str
    policy: str
    policy_version: int
    level: RiskLevel
    opened_at: int
    decided_at: int | None = None
    expires_at: int
    valid_until: int | None = None  # of an approval that was not used yet
    is_automatic: bool
    in_batch: bool
    rules: list[RuleView]
    votes: list[VoteView]
    may_answer: list[str]
    missing: list[str]
    escalations: list[StepView]
    conflicts: list[str]  # who has a hand in the task, and so no say


class ReviewView(Struct, frozen=True, kw_only=True):
    """The newest gate is the last. `preview` is what people are shown of what the task would do."""

    task_id: str
    name: str
    status: Status
    risk: dict[str, Any] | None = None
    gates: list[GateView]
    preview: Any = None
    errors: list[str]  # why it went back to its author
    start: StartMode
    not_before: int | None = None
    not_after: int | None = None
    comments: list[Comment]
    bypass: Bypass | None = None


def view_review(task: Task, people: People, *, now: int) -> ReviewView | None:
    """None where nobody has to approve the task, as far as is known."""
    if task.review is None:
        return None
    review = task.review
    return ReviewView(
        task_id=task.id,
        name=task.name,
        status=task.status,
        risk=task.risk,
        gates=[view_gate(task, gate, people, now=now) for gate in review.gates],
        preview=_plain(task.preview),
        errors=list(review.errors),
        start=review.start,
        not_before=review.not_before,
        not_after=review.not_after,
        comments=list(review.comments),
        bypass=review.bypass,
    )


def view_gate(task: Task, gate: Gate, people: People, *, now: int) -> GateView:
    standing = people.standing(gate, now)
    is_consumed = is_used(task, gate)
    return GateView(
        id=gate.id,
        state=GateState.CONSUMED if is_consumed else standing.state,
        digest=gate.digest,
        step=gate.step,
        about=gate.about,
        reason=gate.reason,
        policy=gate.policy.id,
        policy_version=gate.policy.version,
        level=gate.subject.level,
        opened_at=gate.opened_at,
        decided_at=gate.decided_at,
        expires_at=gate.expires_at,
        valid_until=gate.valid_until if gate.state is GateState.APPROVED and not is_consumed else None,
        is_automatic=gate.is_automatic,
        in_batch=gate.in_batch,
        rules=_rules(gate, people),
        votes=_votes(gate, people),
        may_answer=list(standing.may_vote),
        missing=list(standing.missing),
        escalations=_escalations(gate),
        conflicts=sorted(gate.conflicts),
    )


def is_used(task: Task, gate: Gate) -> bool:
    """Whether the task was started under this approval."""
    if gate.state is not GateState.APPROVED:
        return False
    gates = review_of(task).gates
    later = gates[[each.id for each in gates].index(gate.id) + 1 :]
    went_on = any(each.step and each.step != AFTER_THE_FACT for each in later)
    return went_on or task.attempt > gate.after_attempt


def gate_to_answer(task: Task, number: str = "") -> Gate | None:
    """The gate of this number; without one the newest that is undecided, or else the newest."""
    gates = review_of(task).gates
    if number:
        return next((gate for gate in gates if gate.id == f"{task.id}.{number}"), None)
    undecided = [gate for gate in gates if gate.is_undecided]
    return undecided[-1] if undecided else review_of(task).gate


def _rules(gate: Gate, people: People) -> list[RuleView]:
    filled = seats(gate, people.directory)
    return [
        RuleView(
            name=rule.name,
            needed=rule.needed,
            users=sorted(rule.users),
            roles=sorted(rule.roles),
            filled_by=list(filled[number]),
        )
        for number, rule in enumerate(gate.policy.rules)
    ]


def _votes(gate: Gate, people: People) -> list[VoteView]:
    reasons = uncounted(gate, people.directory)
    return [
        VoteView(
            voter=vote.voter,
            for_whom=vote.chain[0] if vote.chain else "",
            decision=vote.decision,
            at=vote.at,
            reason=vote.reason,
            via=vote.via,
            why_not=reasons.get(vote.seq, ""),
        )
        for vote in gate.votes
    ]


def _escalations(gate: Gate) -> list[StepView]:
    return [
        StepView(
            at=gate.opened_at + step.after_ms,
            users=sorted(step.users),
            roles=sorted(step.roles),
            is_fired=number in gate.fired,
            is_early=number in gate.early,
        )
        for number, step in enumerate(gate.policy.steps)
    ]


def _plain(raw: Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)
