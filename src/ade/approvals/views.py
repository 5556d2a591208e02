"""What waits for people, and how people have dealt with it. Derived from records and log; nothing is counted up."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ade.approvals.gates import admitting_chain, seats, uncounted
from ade.approvals.model import AFTER_THE_FACT, UNDECIDED, Bypass, Comment, Decision, Gate, GateState, StartMode
from ade.approvals.repository import load_people
from ade.approvals.review_requests import ReviewerDirectory, review_of
from ade.approvals.risk import RiskLevel
from ade.approvals.service import snoozed
from ade.events.model import APPROVAL_APPROVED, APPROVAL_REJECTED, Event
from ade.stores.ports import Stores, TaskQuery
from ade.tasks.changes import BYPASSED, CHANGES_REQUESTED
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

_PAGE = 200
_SAMPLE = 10_000  # events read at most, the newest
_VOTES = {
    APPROVAL_APPROVED: Decision.APPROVE,
    APPROVAL_REJECTED: Decision.REJECT,
    CHANGES_REQUESTED: Decision.REQUEST_CHANGES,
}


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A gate at which somebody must answer."""

    task_id: str
    name: str
    description: str | None = None
    author: str | None = None
    priority: int
    approval: str  # the id of the gate
    state: GateState
    digest: str
    step: str  # of a run; "after the fact" once the approval was bypassed
    reason: str
    policy: str
    level: RiskLevel
    score: float | None = None
    opened_at: int
    due_at: int  # until when an answer is of use
    in_batch: bool
    for_whom: str  # whose place it would be answered in; empty: one's own
    may_answer: list[str]
    missing: list[str]


class UserStats(Struct, frozen=True, kw_only=True):
    """`approved`, `rejected` and the response time are those of today, in UTC."""

    account: str
    pending: int
    approved: int
    rejected: int
    response_ms: int | None = None  # on average, from the opening of a gate to the answer
    last_at: int | None = None
    last_action: str | None = None  # the type of its event


class TaskStats(Struct, frozen=True, kw_only=True):
    required: int
    approved: int
    rejected: int
    pending: int  # approvals that are still missing
    quorum_reached: bool


async def inbox(stores: Stores, account: str) -> list[PendingApproval]:
    """What this account may still answer, in its own place or for somebody else, and has not put off; the most urgent
    first."""
    people = await load_people(stores)
    return _ordered([item async for item in _items(stores, people, account)])


async def waiting(stores: Stores) -> list[PendingApproval]:
    """The same for everybody, also where nobody may answer."""
    people = await load_people(stores)
    return _ordered([item async for item in _items(stores, people, None)])


async def _items(stores: Stores, people: ReviewerDirectory, account: str | None) -> AsyncIterator[PendingApproval]:
    now = stores.clock.now()
    put_off = await snoozed(stores, account) if account is not None else frozenset()
    async for task, gate in _undecided(stores):
        item = _item(task, gate, people, account, now=now)
        if item is not None and gate.id not in put_off:
            yield item


async def _undecided(stores: Stores) -> AsyncIterator[tuple[Task, Gate]]:
    after = None
    while True:
        query = TaskQuery(statuses=frozenset({Status.REVIEWING}), oldest_first=True, after=after, limit=_PAGE)
        page = await stores.tasks.find(query)
        for task in page.tasks:
            gate = review_of(task).gate
            if gate is not None and gate.is_undecided:
                yield task, gate
        if page.next is None:
            break
        after = page.next
    async for task, gate in _after_the_fact(stores):
        yield task, gate


async def _after_the_fact(stores: Stores) -> AsyncIterator[tuple[Task, Gate]]:
    """Of tasks whose approval was bypassed, as far as the newest events tell: such a task may have any status."""
    newest = await stores.events.newest(_SAMPLE)
    bypassed = dict.fromkeys(event.task_id for event in newest if event.type == BYPASSED and event.task_id)
    for task in await stores.tasks.get(list(bypassed)):
        for gate in () if task is None else review_of(task).gates:
            if task is not None and gate.step == AFTER_THE_FACT and gate.is_undecided:
                yield task, gate


def _item(
    task: Task, gate: Gate, people: ReviewerDirectory, account: str | None, *, now: int
) -> PendingApproval | None:
    standing = people.standing(gate, now)
    if standing.state not in UNDECIDED or (account is not None and account not in standing.may_vote):
        return None
    chain = None
    if account is not None:
        chain = admitting_chain(gate, account, None, people.directory, people.delegations, now)
    return PendingApproval(
        task_id=task.id,
        name=task.name,
        description=task.description,
        author=task.author_id,
        priority=task.priority,
        approval=gate.id,
        state=standing.state,
        digest=gate.digest,
        step=gate.step,
        reason=gate.reason,
        policy=gate.policy.id,
        level=gate.subject.level,
        score=(task.risk or {}).get("score"),
        opened_at=gate.opened_at,
        due_at=gate.expires_at if task.deadline is None else min(gate.expires_at, task.deadline),
        in_batch=gate.in_batch,
        for_whom=chain[0] if chain else "",
        may_answer=list(standing.may_vote),
        missing=list(standing.missing),
    )


def _ordered(items: list[PendingApproval]) -> list[PendingApproval]:
    return sorted(items, key=lambda item: (item.priority, item.due_at, -item.level.rank, -(item.score or 0)))


def task_stats(task: Task, people: ReviewerDirectory, *, now: int) -> TaskStats | None:
    """How far the newest gate is; None where there is none."""
    gate = review_of(task).gate
    if gate is None:
        return None
    required = sum(rule.needed for rule in gate.policy.rules)
    approved = sum(len(filled) for filled in seats(gate, people.directory))
    standing = people.standing(gate, now)
    rejecting = {vote.voter for vote in gate.votes if vote.decision is Decision.REJECT and not vote.is_dismissed}
    return TaskStats(
        required=required,
        approved=approved,
        rejected=len(standing.rejected_by if gate.is_undecided else rejecting),
        pending=required - approved if gate.is_undecided else 0,
        quorum_reached=gate.is_automatic or approved >= required,
    )


async def user_stats(stores: Stores, account: str) -> UserStats:
    """From the newest 10,000 events, as far as they are of today: where more happens in a day, of its last part."""
    own = [event for event in await stores.events.newest(_SAMPLE) if event.actor == account]
    acts = [event for event in own if event.type.startswith("approval.")]
    midnight = _midnight(stores.clock.now())
    votes = [event for event in acts if event.type in _VOTES and event.at >= midnight]
    decisions = [_VOTES[event.type] for event in votes]
    times = await _response_times(stores, votes)
    return UserStats(
        account=account,
        pending=len(await inbox(stores, account)),
        approved=decisions.count(Decision.APPROVE),
        rejected=decisions.count(Decision.REJECT),
        response_ms=round(sum(times) / len(times)) if times else None,
        last_at=acts[-1].at if acts else None,
        last_action=acts[-1].type if acts else None,
    )


def _midnight(now: int) -> int:
    day = datetime.fromtimestamp(now / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return round(day.timestamp() * 1000)


async def _response_times(stores: Stores, votes: list[Event]) -> list[int]:
    """Of votes whose task is still on record."""
    tasks = await stores.tasks.get(list(dict.fromkeys(vote.task_id for vote in votes if vote.task_id)))
    opened: dict[Any, int] = {
        gate.id: gate.opened_at for task in tasks if task is not None for gate in review_of(task).gates
    }
    return [vote.at - opened[key] for vote in votes if (key := vote.payload.get("approval")) in opened]


# All about the approval of one task, as it stands now.


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


def view_review(task: Task, people: ReviewerDirectory, *, now: int) -> ReviewView | None:
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


def view_gate(task: Task, gate: Gate, people: ReviewerDirectory, *, now: int) -> GateView:
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


def _rules(gate: Gate, people: ReviewerDirectory) -> list[RuleView]:
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


def _votes(gate: Gate, people: ReviewerDirectory) -> list[VoteView]:
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


# What somebody needs to see before he answers: the task itself, all that was said about it, and what is missing.


class ApprovalView(Struct, frozen=True, kw_only=True):
    task_id: str
    name: str
    status: Status
    version: int
    args: Raw  # those it would run with, however large
    review: ReviewView
    author: str | None = None
    description: str | None = None
    stats: TaskStats | None = None


class Voted(Struct, frozen=True, kw_only=True):
    """The task after an answer, how its approval stands, and whose answer is missing still."""

    task: Task
    approval: str  # the id of the gate
    state: GateState
    missing: list[str]


class Snoozed(Struct, frozen=True, kw_only=True):
    task_id: str
    account: str
    until: int


def view_approval(task: Task, args: Raw, people: ReviewerDirectory, *, now: int) -> ApprovalView | None:
    """None where nobody has to approve the task, as far as is known."""
    review = view_review(task, people, now=now)
    if review is None:
        return None
    return ApprovalView(
        task_id=task.id,
        name=task.name,
        status=task.status,
        version=task.version,
        args=args,
        review=review,
        author=task.author_id,
        description=task.description,
        stats=task_stats(task, people, now=now),
    )


def view_vote(task: Task, gate: Gate, people: ReviewerDirectory, *, now: int) -> Voted:
    """`gate` as it was when it was answered."""
    gates = () if task.review is None else task.review.gates
    standing = people.standing(next((each for each in gates if each.id == gate.id), gate), now)
    return Voted(task=task, approval=gate.id, state=standing.state, missing=list(standing.missing))
