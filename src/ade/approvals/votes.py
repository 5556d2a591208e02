"""Votes: whether a vote counts at a gate, and what it changes."""

from typing import Any

import msgspec
from msgspec import Struct, structs

from ade.accounts.authorization import password_change_needed
from ade.accounts.model import FRESH_MS, SYSTEM, Account
from ade.approvals.digest import signed_at
from ade.approvals.errors import (
    ConflictOfInterest,
    DigestMismatch,
    GateClosed,
    NoGate,
    NotEligible,
    ReauthenticationNeeded,
    UnknownApproval,
)
from ade.approvals.gates import admitting_chain, has_voted
from ade.approvals.model import (
    AFTER_THE_FACT,
    MAX_STEP_REQUESTS,
    UNDECIDED,
    Decision,
    Gate,
    GateState,
    StartMode,
    Vote,
)
from ade.approvals.review_requests import (
    ReviewerDirectory,
    again,
    escalated,
    gate_event,
    names_of,
    reconsidered,
    requested,
    review_of,
    vote_event,
)
from ade.approvals.risk import RiskLevel
from ade.errors import AdeError, InvalidTask
from ade.events.model import (
    APPROVAL_APPROVED,
    APPROVAL_BLOCKED,
    APPROVAL_REJECTED,
    APPROVAL_RESPONDED,
    APPROVAL_UNBLOCKED,
    Event,
)
from ade.tasks.changes import CHANGES_REQUESTED, QUEUED, Change, change
from ade.tasks.lifecycle import Status, Verb
from ade.tasks.model import Task

REAUTHENTICATION_MS = FRESH_MS
_TAKES_PASSWORD = frozenset({RiskLevel.HIGH, RiskLevel.CRITICAL})
_LONGEST_REASON = 2_000
LONGEST_RESPONSE = 10_000  # characters
LARGEST_STEP = 256 * 1024  # bytes that reviewers can be shown
_MOST_ANSWERS = 20  # votes of one account at one gate


class VoteRequest(Struct, frozen=True, kw_only=True):
    """One vote, as it was given. `approval` and `digest` are the gate and the whole digest that the voter saw."""

    voter: str
    decision: Decision
    approval: str  # the ID of the gate
    digest: str
    reason: str = ""
    on_behalf_of: str | None = None
    authenticated_at: int | None = None  # when the voter last gave a password
    via: str = ""
    text: str = ""  # of a response
    args: dict[str, Any] | None = None  # of a response: replaces what the step is about
    go_on: bool = False  # of a rejection: the run continues without the step


def gate_for(task: Task, gate_id: str | None = None) -> Gate:
    """Return the gate with this ID, or the newest. Raises NoGate and UnknownApproval."""
    for gate in reversed(review_of(task).gates):
        if gate_id is None or gate.id == gate_id:
            return gate
    raise no_such_gate(task, gate_id)


def gate_to_answer(task: Task, gate_id: str | None = None) -> Gate:
    """Return the gate with this ID; by default the newest undecided one, or else the newest. Raises NoGate and
    UnknownApproval."""
    undecided = [gate for gate in review_of(task).gates if gate.is_undecided]
    return undecided[-1] if undecided and gate_id is None else gate_for(task, gate_id)


def no_such_gate(task: Task, gate_id: str | None = None) -> AdeError:
    """Return the error for a missing gate. A submitted task might still get its gate."""
    if task.review is None:
        return UnknownApproval(f"no approval is needed for task {task.id}")
    if gate_id is not None:
        return UnknownApproval(f"task {task.id} has no approval {gate_id[:100]}")
    return NoGate(f"no approval is needed for task {task.id} now")


def cast(task: Task, ballot: VoteRequest, people: ReviewerDirectory, *, now: int) -> Change | None:
    """Return the change that a vote makes; None if the same vote is already recorded. Raises UnknownApproval,
    GateClosed, DigestMismatch, NotEligible, and its subclasses."""
    gate = gate_for(task, ballot.approval)
    if _is_repeated(task, gate, ballot):
        return None
    _check_open(task, gate, ballot, now=now)
    _check_response(task, gate, ballot)
    voter = _checked_voter(gate, ballot, people, now=now)
    chain = admitting_chain(gate, voter.id, ballot.on_behalf_of, people.directory, people.delegations, now)
    is_denial = ballot.decision in (Decision.REJECT, Decision.RESPOND)
    has_veto = is_denial and not gate.policy.veto_roles.isdisjoint(voter.roles)
    if chain is None and not has_veto:
        raise NotEligible(_not_asked(gate, ballot, people, now))
    if sum(vote.voter == voter.id for vote in gate.votes) >= _MOST_ANSWERS:
        raise NotEligible(f"{voter.id} has changed the vote {_MOST_ANSWERS} times here; someone else must answer")
    owner = people.directory.get(chain[0]) if chain else None
    vote = Vote(
        seq=len(gate.votes) + 1,
        voter=voter.id,
        decision=ballot.decision,
        digest=ballot.digest,
        at=now,
        chain=chain or (),
        roles=voter.roles,
        owner_roles=frozenset() if owner is None else owner.roles,
        person=voter.person,
        owner_person="" if owner is None else owner.person,
        reason=ballot.reason,
        via=ballot.via,
        text=ballot.text,
        go_on=ballot.go_on,
        password_set_by=voter.recent_reset_by(now),
    )
    if ballot.args is not None:
        return _edited(task, gate, vote, ballot.args, people, now=now)
    return with_vote(task, structs.replace(gate, votes=(*gate.votes, vote)), vote, people, now=now)


def with_vote(task: Task, gate: Gate, vote: Vote, people: ReviewerDirectory, *, now: int) -> Change:
    """Return the change of the task, now that its gate has this vote."""
    state, review = people.standing(structs.replace(gate, state=GateState.OPEN), now).state, review_of(task)
    after = structs.replace(gate, state=state, decided_at=gate.decided_at if state in UNDECIDED else now)
    if review.gate is not None and review.gate.id != gate.id:  # a review after the fact, with no effect on the task
        return _noted(task, after, vote, now=now)
    is_draft = task.status is Status.DRAFT  # changes were requested, and the reviewer votes again on the same draft
    match state:
        case GateState.APPROVED:
            verb = Verb.REOPEN if is_draft else Verb.APPROVE
            return approved(task, after, verb, now=now, actor=vote.voter, first_events=(_event_of(gate, vote),))
        case GateState.REJECTED:
            return change(
                task,
                Verb.REJECT,
                now=now,
                actor=vote.voter,
                first_events=(_event_of(gate, vote),),
                payload={"approval": gate.id, "reason": vote.reason},
                review=review.with_gate(after),
                finished_at=now,
                reason=vote.reason or f"rejected by {vote.voter}",
            )
        case GateState.RESPONDED:
            return responded(task, after, now=now, actor=vote.voter, first_events=(_event_of(gate, vote),))
        case GateState.CHANGES_REQUESTED if not is_draft:
            return change(
                task,
                Verb.REQUEST_CHANGES,
                now=now,
                actor=vote.voter,
                payload=_event_of(gate, vote).payload,
                review=review.with_gate(after, errors=(vote.reason,) if vote.reason else ()),
            )
        case GateState.OPEN | GateState.BLOCKED if is_draft:
            return change(
                task,
                Verb.REOPEN,
                now=now,
                actor=vote.voter,
                first_events=(_event_of(gate, vote),),
                payload={"approval": gate.id},
                review=review.with_gate(after, errors=()),
            )
    return _noted(task, after, vote, now=now)


def responded(task: Task, gate: Gate, *, now: int, actor: str, first_events: tuple[Event, ...] = ()) -> Change:
    """Let a held run continue without the step that reviewers did not approve; it gets their response."""
    return change(
        task,
        Verb.RESPOND,
        now=now,
        actor=actor,
        first_events=first_events,
        more_events=(gate_event(gate, QUEUED, now=now, actor=actor),),
        review=review_of(task).with_gate(gate, errors=()),
    )


def _edited(task: Task, gate: Gate, vote: Vote, args: dict[str, Any], people: ReviewerDirectory, *, now: int) -> Change:
    """Request approval of the edited arguments, before the run continues with them.

    One eligible reviewer is enough for an edit, as for a request for changes: it approves nothing. Who edits gets an
    author conflict, so others must approve exactly these arguments.
    """
    if task.status not in (Status.REVIEWING, Status.DRAFT):  # it was submitted again
        raise GateClosed(f"task {task.id} is {task.status}, so no run waits at approval {gate.id}; nothing was changed")
    editors = {vote.voter, people.directory.who(vote.voter), *vote.chain}
    fresh = again(structs.replace(gate, about=args), task, now=now, conflicts=gate.conflicts | editors)
    fresh, more = reconsidered(fresh, people, now=now)
    vote = structs.replace(vote, edited=fresh.id)
    closed = structs.replace(gate, votes=(*gate.votes, vote), state=GateState.RESPONDED, decided_at=now)
    review = review_of(task).with_gate(closed).with_gate(fresh, errors=())
    events = (_event_of(closed, vote), requested(fresh, now=now), *more)
    if task.status is not Status.DRAFT:
        return change(task, Verb.REVIEW, now=now, more_events=events, review=review)
    payload: dict[str, object] = {"approval": fresh.id}
    return change(task, Verb.REOPEN, now=now, actor=vote.voter, first_events=events, payload=payload, review=review)


def _check_response(task: Task, gate: Gate, ballot: VoteRequest) -> None:
    """Raise InvalidTask for a response, or a rejection that lets the run continue, that does not fit the gate."""
    responds = ballot.decision is Decision.RESPOND
    if not responds and (ballot.text or ballot.args is not None):
        raise InvalidTask(f"only a response has text or arguments, not the decision {ballot.decision}; use reason")
    if ballot.go_on and ballot.decision is not Decision.REJECT:
        raise InvalidTask(f"go_on is for a rejection, not for the decision {ballot.decision}")
    if (responds or ballot.go_on) and not gate.is_step:
        raise InvalidTask(
            f"no run waits at approval {gate.id}, so there is nothing to respond to; reject it, request changes, or"
            " comment"
        )
    if responds:
        _check_contents(task, gate, ballot)


def _check_contents(task: Task, gate: Gate, ballot: VoteRequest) -> None:
    if not ballot.text.strip() and ballot.args is None:
        raise InvalidTask("a response needs a text or edited arguments")
    if len(ballot.text) > LONGEST_RESPONSE:
        raise InvalidTask(f"a response has at most {LONGEST_RESPONSE:,} characters, not {len(ballot.text):,}")
    if ballot.args is None:
        return
    if ballot.args == gate.about:
        raise InvalidTask("these are the arguments that wait for approval; approve them, or change them")
    if (size := len(msgspec.json.encode(ballot.args))) > LARGEST_STEP:
        raise InvalidTask(f"edited arguments have at most {LARGEST_STEP:,} bytes, not {size:,}")
    if len(review_of(task).gates) > MAX_STEP_REQUESTS:
        raise InvalidTask(f"a task has at most {MAX_STEP_REQUESTS} requests for approval; respond with text alone")


def _is_repeated(task: Task, gate: Gate, ballot: VoteRequest) -> bool:
    """Whether this is a double click, or the same request again."""
    last = next((vote for vote in reversed(gate.votes) if vote.voter == ballot.voter), None)
    return (
        last is not None
        and (last.decision, last.digest) == (ballot.decision, ballot.digest)
        and (last.text, last.go_on) == (ballot.text, ballot.go_on)
        and next((each.about for each in review_of(task).gates if each.id == last.edited), None) == ballot.args
        and not last.is_dismissed
        and ballot.on_behalf_of in (None, (*last.chain, last.voter)[0])
    )


def _check_open(task: Task, gate: Gate, ballot: VoteRequest, *, now: int) -> None:
    if not gate.is_undecided:
        why = f" ({gate.end_reason})" if gate.end_reason else ""
        raise GateClosed(f"approval {gate.id} is {gate.state} already{why}; nothing was changed")
    if now >= gate.expires_at:
        raise GateClosed(f"approval {gate.id} has expired: no one answered in time")
    if ballot.digest != gate.digest:
        raise DigestMismatch(
            f"the task has changed since you reviewed it: its digest is {gate.digest[:12]}, and not"
            f" {ballot.digest[:12] or 'empty'}; look at it again, then answer"
        )
    if gate.step != AFTER_THE_FACT and signed_at(task, gate) is None:
        raise DigestMismatch(
            f"the record of task {task.id} is not what approval {gate.id} was requested for: it was edited without ADE",
            advice="`ade audit verify` compares all records with the log",
        )
    if len(ballot.reason) > _LONGEST_REASON:
        raise NotEligible(f"a reason has at most {_LONGEST_REASON} characters")


def _checked_voter(gate: Gate, ballot: VoteRequest, people: ReviewerDirectory, *, now: int) -> Account:
    voter = people.directory.get(ballot.voter)
    if voter is None:
        raise NotEligible(f"no account {ballot.voter[:100]!r} exists", advice="`ade users add` creates one")
    if not voter.is_active or not voter.is_human:
        raise NotEligible(f"{voter.id} cannot answer: it is {'a program' if voter.is_active else 'not active'}")
    if voter.must_change_password:
        raise password_change_needed(voter.id, voter.password_set_by)
    if is_conflicted(gate, voter.id, people):
        raise ConflictOfInterest(f"{voter.id} is involved in this task (as its author, editor, or owner)")
    needs_password = ballot.decision is Decision.APPROVE and gate.subject.level in _TAKES_PASSWORD
    at = ballot.authenticated_at
    if needs_password and (at is None or not now - REAUTHENTICATION_MS <= at <= now):
        raise ReauthenticationNeeded()
    return voter


def is_conflicted(gate: Gate, account: str, people: ReviewerDirectory) -> bool:
    """Whether an account has an author conflict at this gate."""
    if gate.policy.authors_may_vote:
        return False
    return people.directory.who(account) in {people.directory.who(each) for each in gate.conflicts}


def _not_asked(gate: Gate, ballot: VoteRequest, people: ReviewerDirectory, now: int) -> str:
    able = people.standing(gate, now).may_vote
    owner = ballot.on_behalf_of
    if owner and has_voted(gate, owner, people.directory):
        return f"{owner} has voted, so {ballot.voter} cannot vote for {owner}"
    for_whom = f" for {owner}" if owner else ""
    return f"{ballot.voter} is not a reviewer here{for_whom}; those who can answer: {names_of(able)}"


def _event_of(gate: Gate, vote: Vote) -> Event:
    kinds = {
        Decision.APPROVE: APPROVAL_APPROVED,
        Decision.REJECT: APPROVAL_REJECTED,
        Decision.REQUEST_CHANGES: CHANGES_REQUESTED,
        Decision.RESPOND: APPROVAL_RESPONDED,
    }
    return vote_event(gate, vote, kinds[vote.decision])


def _noted(task: Task, gate: Gate, vote: Vote, *, now: int) -> Change:
    """Record a vote that decides nothing yet."""
    was_blocked = any(each.id == gate.id and each.state is GateState.BLOCKED for each in review_of(task).gates)
    freed = (gate_event(gate, APPROVAL_UNBLOCKED, now=now),) if was_blocked and gate.state is GateState.OPEN else ()
    events = (_event_of(gate, vote), *freed)
    return change(task, Verb.REVIEW, now=now, more_events=events, review=review_of(task).with_gate(gate))


def approved(
    task: Task,
    gate: Gate,
    verb: Verb,
    *,
    now: int,
    actor: str,
    first_events: tuple[Event, ...] = (),
    also: dict[str, object] | None = None,
) -> Change:
    """Pass the gate: the task joins its queue in the same write, unless it needs a manual start."""
    review = review_of(task).with_gate(gate, errors=())
    by_hand = review.start is StartMode.BY_HAND and not gate.step  # a run that waits was already started
    payload: dict[str, object] = {"approval": gate.id, "digest": gate.digest, "automatic": gate.is_automatic}
    fields: dict[str, object] = {"review": review, "approved_at": now, **(also or {})}
    if not by_hand and not gate.step:
        fields["run_after"] = max(task.run_after, review.not_before or 0)
    return change(
        task,
        verb,
        now=now,
        target=Status.APPROVED if by_hand else Status.PENDING,
        actor=actor,
        first_events=first_events,
        payload=payload,
        more_events=() if by_hand else (gate_event(gate, QUEUED, now=now, actor=actor),),
        also=fields,
    )


def gate_events(task: Task, gate: Gate) -> tuple[Event, ...]:
    """Return the events of a task that is stored together with its gate."""
    now = task.created_at
    opened = requested(gate, now=now)
    if gate.state is GateState.APPROVED:
        return opened, gate_event(gate, QUEUED, now=now, actor=SYSTEM)
    steps = tuple(escalated(gate, number, now=now) for number in gate.fired)
    return (
        opened,
        *steps,
        *((gate_event(gate, APPROVAL_BLOCKED, now=now),) if gate.state is GateState.BLOCKED else ()),
    )
