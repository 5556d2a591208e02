"""Views of approvals: inboxes, statistics of an account or task, and the review of one task.

Everything is derived from records and the event log; no counts are stored.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ade.approvals.decisions import steps_under
from ade.approvals.digest import signed_at
from ade.approvals.gates import GateStanding, admitting_chain, seats, uncounted
from ade.approvals.guard import UNKNOWN, with_defaults
from ade.approvals.model import (
    AFTER_THE_FACT,
    UNDECIDED,
    Bypass,
    Comment,
    Decision,
    FieldChange,
    Gate,
    GateState,
    StartMode,
)
from ade.approvals.repository import load_people
from ade.approvals.review_requests import ReviewerDirectory, Standings, review_of
from ade.approvals.risk import ResourceSource, RiskLevel, RiskResource
from ade.approvals.rulebook import Rulebook, criticalities_of
from ade.approvals.service import snoozed
from ade.stores.ports import Stores, TaskQuery
from ade.tasks.attempts import AttemptSummary
from ade.tasks.changes import BYPASSED
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Task
from ade.tasks.payloads import beginning_of

_PAGE = 1_000
_SAMPLE = 10_000  # events read at most, the newest


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A gate that waits for votes."""

    task_id: str
    name: str
    description: str | None = None
    author: str | None = None
    author_name: str = ""  # the display name, if there is one
    arguments: str  # on one line, shortened
    priority: int
    approval: str  # the id of the gate
    state: GateState
    digest: str
    step: str  # of a run; "after the fact" if the approval was bypassed
    reason: str
    policy: str
    level: RiskLevel
    score: float | None = None
    opened_at: int
    due_at: int  # until when a vote is useful
    in_batch: bool
    for_whom: str  # the account to vote on behalf of; empty: the caller's own vote
    may_answer: list[str]
    missing: list[str]


class TaskStats(Struct, frozen=True, kw_only=True):
    """How many approvals a task needs and has."""

    required: int
    approved: int
    rejected: int
    pending: int  # approvals that are still missing
    quorum_reached: bool


async def inbox(stores: Stores, account: str) -> list[PendingApproval]:
    """List what this account can still vote on, for itself or for others, and has not snoozed; most urgent first."""
    snoozed_gates = await snoozed(stores, account)
    return [item for item in await _pending(stores, account) if item.approval not in snoozed_gates]


async def waiting(stores: Stores) -> list[PendingApproval]:
    """List all pending approvals, also those on which no one can vote; most urgent first."""
    return await _pending(stores, None)


async def _pending(stores: Stores, account: str | None) -> list[PendingApproval]:
    people, now = await load_people(stores), stores.clock.now()
    standings = Standings(people, now)
    items = [
        item
        async for task, gate in _undecided(stores)
        if (item := _item(task, gate, people, account, standings.of(gate), now=now)) is not None
    ]
    return sorted(items, key=lambda item: (item.priority, item.due_at, -item.level.rank, -(item.score or 0)))


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
    """Yield open reviews of bypassed approvals, as far as the newest events contain them: such a task can have any
    status."""
    newest = await stores.events.newest(_SAMPLE)
    bypassed = dict.fromkeys(event.task_id for event in newest if event.type == BYPASSED and event.task_id)
    for task in await stores.tasks.get(list(bypassed)):
        for gate in () if task is None else review_of(task).gates:
            if task is not None and gate.step == AFTER_THE_FACT and gate.is_undecided:
                yield task, gate


def _item(
    task: Task, gate: Gate, people: ReviewerDirectory, account: str | None, standing: GateStanding, *, now: int
) -> PendingApproval | None:
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
        author_name=author_name(task, people),
        arguments=beginning_of(task.args),
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


def task_stats(task: Task, people: ReviewerDirectory, *, now: int) -> TaskStats | None:
    """Return the progress of the newest gate, or None if there is none."""
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


# The review of one task.


class RuleView(Struct, frozen=True, kw_only=True):
    """A policy rule; `filled_by` are the people whose approvals count for it."""

    name: str
    needed: int
    users: list[str]
    roles: list[str]
    filled_by: list[str]


class VoteView(Struct, frozen=True, kw_only=True):
    """A vote, and why it does not count, if so."""

    voter: str
    voter_name: str = ""  # the display name, if there is one
    for_whom: str  # empty: the voter's own vote
    decision: Decision
    at: int
    reason: str
    via: str
    why_not: str  # why it does not count; empty if it does
    text: str = ""  # of a response
    edited: str = ""  # of a response: the gate for the edited arguments
    go_on: bool = False  # of a rejection: the run continues without the step
    password_set_by: str | None = None  # another account that set the voter's password in the week before


class StepView(Struct, frozen=True, kw_only=True):
    """An escalation: from `at` on, these accounts can vote too."""

    at: int
    users: list[str]
    roles: list[str]
    is_fired: bool
    is_early: bool  # fired before its time, because no one else could vote


class GateView(Struct, frozen=True, kw_only=True):
    """A gate with its rules, votes, and escalations."""

    id: str
    state: GateState
    digest: str
    code: str = ""  # the version of the task's code that is approved; empty if no worker has reported one
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
    conflicts: list[str]  # accounts with an author conflict, which cannot vote
    end_reason: str = ""  # why it was cancelled
    names: dict[str, str] = {}  # display names of the accounts above, by their IDs
    signed: dict[str, Any] | None = None  # every field that the digest covers; None if the task has changed since
    changes: list[FieldChange]  # of these fields, since the gate before


class ReviewView(Struct, frozen=True, kw_only=True):
    """The review of one task. The newest gate is the last. `preview` is what reviewers are shown of the effects."""

    task_id: str
    name: str
    status: Status
    risk: dict[str, Any] | None = None
    gates: list[GateView]
    preview: Any = None
    errors: list[str]  # why it was sent back to its author
    start: StartMode
    not_before: int | None = None
    not_after: int | None = None
    comments: list[Comment]
    bypass: Bypass | None = None


def view_review(task: Task, people: ReviewerDirectory, *, now: int) -> ReviewView | None:
    """Return the review of a task; None if it needs no approval, as far as is known."""
    if task.review is None:
        return None
    review = task.review
    return ReviewView(
        task_id=task.id,
        name=task.name,
        status=task.status,
        risk=task.risk,
        gates=[view_gate(task, gate, people, now=now) for gate in review.gates],
        preview=None if task.preview is None else msgspec.json.decode(task.preview),
        errors=list(review.errors),
        start=review.start,
        not_before=review.not_before,
        not_after=review.not_after,
        comments=list(review.comments),
        bypass=review.bypass,
    )


def view_gate(task: Task, gate: Gate, people: ReviewerDirectory, *, now: int) -> GateView:
    """Return one gate for display."""
    standing = people.standing(gate, now)
    is_consumed = is_used(task, gate)
    return GateView(
        id=gate.id,
        state=GateState.CONSUMED if is_consumed else standing.state,
        digest=gate.digest,
        code=gate.code,
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
        end_reason=gate.end_reason,
        names=_names(gate, standing.may_vote, people),
        signed=signed_at(task, gate),
        changes=list(gate.changes),
    )


def author_name(task: Task, people: ReviewerDirectory) -> str:
    """Return the display name of the author as it is now, or else as it was when the task was created."""
    return people.name_of(task.author_id or "") or task.author_name or ""


def _names(gate: Gate, may_vote: Iterable[str], people: ReviewerDirectory) -> dict[str, str]:
    voters = (account for vote in gate.votes for account in (vote.voter, *vote.chain))
    named = ((account, people.name_of(account)) for account in {*may_vote, *gate.conflicts, *voters})
    return dict(sorted((account, name) for account, name in named if name))


def is_used(task: Task, gate: Gate) -> bool:
    """Whether the task was started under this approval."""
    return gate.state is GateState.APPROVED and (task.attempt > gate.after_attempt or bool(steps_under(task, gate)))


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
            voter_name=people.name_of(vote.voter),
            for_whom=vote.chain[0] if vote.chain else "",
            decision=vote.decision,
            at=vote.at,
            reason=vote.reason,
            via=vote.via,
            why_not=reasons.get(vote.seq, ""),
            text=vote.text,
            edited=vote.edited,
            go_on=vote.go_on,
            password_set_by=vote.password_set_by or None,
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


# What a reviewer needs before voting, and the responses to votes.


class ApprovalView(Struct, frozen=True, kw_only=True):
    """A task and its review, as a reviewer needs them."""

    task_id: str
    name: str
    status: Status
    version: int
    args: Raw  # in full, however large
    defaults: dict[str, Any] = {}  # of arguments that are left out; null also if JSON cannot represent the default
    review: ReviewView
    author: str | None = None
    author_name: str = ""  # the display name, if there is one
    description: str | None = None
    stats: TaskStats | None = None
    resources: list[RiskResource]  # behind the factors of the risk, the most critical first
    runs: list[AttemptSummary]  # earlier ones, the oldest first
    masked: list[str] = []  # arguments whose values the caller does not see; the digest covers the real values


class Voted(Struct, frozen=True, kw_only=True):
    """The task after a vote, the state of its gate, and the missing approvals."""

    task: Task
    approval: str  # the id of the gate
    state: GateState
    missing: list[str]


class Snoozed(Struct, frozen=True, kw_only=True):
    """An approval that an account has snoozed."""

    task_id: str
    account: str
    until: int


def view_approval(
    task: Task,
    args: Raw,
    people: ReviewerDirectory,
    rulebook: Rulebook,
    runs: list[AttemptSummary],
    *,
    definition: Definition | None,
    now: int,
) -> ApprovalView | None:
    """Return a task with its review; None if it needs no approval, as far as is known."""
    review = view_review(task, people, now=now)
    if review is None:
        return None
    return ApprovalView(
        task_id=task.id,
        name=task.name,
        status=task.status,
        version=task.version,
        args=args,
        defaults=_defaults(args, definition),
        review=review,
        author=task.author_id,
        author_name=author_name(task, people),
        description=task.description,
        stats=task_stats(task, people, now=now),
        resources=_resources(task, rulebook),
        runs=runs,
    )


def _defaults(args: Raw, definition: Definition | None) -> dict[str, Any]:
    given = msgspec.json.decode(args)
    received = with_defaults(given, None if definition is None else definition.schema)
    if not isinstance(given, Mapping) or not isinstance(received, Mapping):
        return {}
    return {name: None if value is UNKNOWN else value for name, value in received.items() if name not in given}


def _resources(task: Task, rulebook: Rulebook) -> list[RiskResource]:
    """Return the resources of the last assessment; before the first one, those that the author declares."""
    if task.risk is not None and "resources" in task.risk:
        return msgspec.convert(task.risk["resources"], list[RiskResource])
    names = tuple(dict.fromkeys((*task.resources, *(spec.resource for spec in task.locks))))
    return [
        RiskResource(name=name, sources=(ResourceSource.AUTHOR,), criticality=criticality)
        for name, criticality in zip(names, criticalities_of(rulebook, names), strict=True)
    ]


def view_vote(task: Task, gate: Gate, people: ReviewerDirectory, *, now: int) -> Voted:
    """Return the result of a vote; `gate` is the gate as it was before the vote."""
    gates = () if task.review is None else task.review.gates
    standing = people.standing(next((each for each in gates if each.id == gate.id), gate), now)
    return Voted(task=task, approval=gate.id, state=standing.state, missing=list(standing.missing))
