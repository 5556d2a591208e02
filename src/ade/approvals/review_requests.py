"""Opening a gate: author conflicts, escalation, and the events from which its decision can be recomputed."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct, structs

from ade.accounts.model import Directory, InvalidAccount, normal_id
from ade.approvals.digest import changes_since, digest_for, digest_of, signed_fields
from ade.approvals.gates import GateStanding, evaluate
from ade.approvals.model import (
    NO_AUTHOR,
    Delegation,
    Gate,
    GateState,
    Policy,
    PolicyStep,
    Review,
    Subject,
    Vote,
    with_editor,
)
from ade.approvals.risk import Risk
from ade.events.model import APPROVAL_BLOCKED, APPROVAL_ESCALATED, APPROVAL_REQUESTED, Event
from ade.tasks.changes import Change
from ade.tasks.decisions import MISSED, is_overdue, miss_deadline
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

TOO_LATE = "its window is over"


class ReviewerDirectory(Struct, frozen=True):
    """All accounts and delegations, as they were at one moment."""

    directory: Directory
    delegations: tuple[Delegation, ...] = ()

    def standing(self, gate: Gate, now: int) -> GateStanding:
        """Evaluate a gate with these accounts and delegations."""
        return evaluate(gate, self.directory, self.delegations, now)

    def name_of(self, account: str) -> str:
        """Return the display name of an account; empty if it has none or is unknown."""
        known = self.directory.get(account)
        return "" if known is None else known.display_name


class Standings:
    """Evaluates many gates at one moment. Gates without votes that differ only in their task share one evaluation."""

    def __init__(self, people: ReviewerDirectory, now: int) -> None:
        self._people = people
        self._now = now
        self._alone = frozenset(each.task_id for each in people.delegations if each.task_id)
        self._known: dict[object, GateStanding] = {}
        self.evaluations = 0

    def of(self, gate: Gate) -> GateStanding:
        """Evaluate a gate; the same as ReviewerDirectory.standing."""
        if gate.votes or not gate.is_undecided or gate.task_id in self._alone:
            return self._evaluated(gate)
        due = tuple(self._now >= gate.opened_at + step.after_ms for step in gate.policy.steps)
        subject = structs.replace(gate.subject, task_id="")
        key = (gate.policy, gate.conflicts, subject, gate.early, due, self._now >= gate.expires_at)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._evaluated(gate)
        return found

    def _evaluated(self, gate: Gate) -> GateStanding:
        self.evaluations += 1
        return self._people.standing(gate, self._now)


class ApprovalRequirement(Struct, frozen=True, kw_only=True):
    """Why and by whom a task must be approved."""

    policy: Policy
    policies: tuple[str, ...] = ()  # the rulebook entries it combines
    required: tuple[str, ...] = ()  # those of them that the author did not choose
    subject: Subject
    risk: Risk
    is_automatic: bool = False  # the policy approves it automatically
    in_batch: bool = True
    reason: str = ""
    step: str = ""
    about: object = None  # the subject of a step within a run
    code: str = ""  # the version of the task's code that workers have registered
    inherited: frozenset[str] = frozenset()  # accounts with a conflict at the tasks that this one descends from


def review_of(task: Task) -> Review:
    """Return the review of a task, or an empty one."""
    return task.review or Review()


def writers_of(task: Task) -> frozenset[str]:
    """Return the accounts that wrote a task: its author, its editors, and those in conflict at its last gate."""
    review = review_of(task)
    conflicts = review.gate.conflicts if review.gate is not None else ()
    return frozenset(each for each in (task.author_id, *review.editors, *conflicts) if each)


def requested_by(task: Task, actor: str | None) -> Task:
    """Return a draft as this account submits it. If it has no author, that account is in conflict instead."""
    return task if writers_of(task) else structs.replace(task, review=with_editor(review_of(task), actor))


def with_author_of(parent: Task, child: Task) -> Task:
    """Return a task that a run enqueues. Its author is that of the run's task; an author or parent that it names itself
    only adds accounts that cannot approve it."""
    return inheriting(child, parent.author_id, writers_of(parent) if child.parent_id != parent.id else frozenset())


def inheriting(child: Task, inherited: str | None, writers: frozenset[str]) -> Task:
    """Return a task with an inherited author. Its own author and these writers cannot approve it either."""
    named = (child.author_id, *sorted(writers)) if inherited is not None else tuple(sorted(writers))
    author = inherited or child.author_id
    others = [each for each in named if each and each != author]
    if author == child.author_id and not others:
        return child
    review = child.review
    for each in others:
        review = with_editor(review or Review(), each)
    return structs.replace(child, author_id=author, review=review)


def conflicts_of(task: Task, directory: Directory, inherited: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return accounts with an author conflict: those who wrote the task or one that it descends from, and the owners
    of programs among them."""
    found = _with_owners((account_of(each) for each in writers_of(task) | inherited), directory)
    return frozenset(found | {directory.who(each) for each in found})  # the persons too, for audits of the log alone


def unverified_writers(task: Task, directory: Directory) -> tuple[str, ...]:
    """Return the author and the editors that are not accounts, which therefore could approve the task under another
    name; NO_AUTHOR if no one is known to have written it."""
    review = review_of(task)
    names = [account_of(each) for each in (task.author_id, *review.editors) if each]
    if not writers_of(task):
        return (NO_AUTHOR,)
    earlier = () if review.gate is None else (each for each in review.gate.unverified if each != NO_AUTHOR)
    return tuple(dict.fromkeys(name for name in (*names, *earlier) if directory.get(name) is None))


def account_of(name: str) -> str:
    """Normalize an author's name, so that another spelling does not evade the conflict check."""
    try:
        return normal_id(name)
    except InvalidAccount:
        return name  # no account can have this name


def _with_owners(accounts: Iterable[str], directory: Directory) -> set[str]:
    found, frontier = set[str](), list(accounts)
    while frontier:
        here = frontier.pop()
        if here in found:
            continue
        found.add(here)
        known = directory.get(here)
        if known is not None and known.owner:
            frontier.append(known.owner)
    return found


def open_gate(
    task: Task, demand: ApprovalRequirement, people: ReviewerDirectory, *, now: int
) -> tuple[Gate, tuple[Event, ...]]:
    """Return the next gate of this task, and the events that record it. Raises InvalidSubject."""
    number = _next_number(review_of(task))
    fields = signed_fields(task, demand.policy, number, demand.step, demand.about, code=demand.code)
    gate = Gate(
        id=f"{task.id}.{number}",
        task_id=task.id,
        digest=digest_of(fields),
        changes=() if demand.step else changes_since(review_of(task).signed, fields),
        subject=demand.subject,
        policy=demand.policy,
        policies=demand.policies,
        required=demand.required,
        code=demand.code,
        conflicts=conflicts_of(task, people.directory, demand.inherited),
        unverified=unverified_writers(task, people.directory),
        opened_at=now,
        step=demand.step,
        about=demand.about,
        reason=demand.reason,
        generation=task.generation,
        after_attempt=task.attempt,
        after_throttles=task.throttles,
        in_batch=demand.in_batch,
    )
    if demand.is_automatic:
        gate = structs.replace(gate, state=GateState.APPROVED, decided_at=now, is_automatic=True)
        return gate, (requested(gate, now=now),)
    gate, more = reconsidered(gate, people, now=now)
    return gate, (requested(gate, now=now), *more)


def lateness(task: Task, now: int) -> str:
    """Return why a task that no run holds can no longer start in time; empty if it can. A run that waits at a step
    began within the window."""
    if is_overdue(task, now):
        return MISSED
    review = review_of(task)
    waits_at_step = task.status in (Status.REVIEWING, Status.DRAFT) and review.gate is not None and review.gate.is_step
    is_over = review.not_after is not None and now >= review.not_after
    return TOO_LATE if is_over and not waits_at_step else ""


def ended_late(task: Task, now: int) -> Change | None:
    """Return the failure of a task that waits for approval, or for its start, and can no longer start in time."""
    if task.status not in (Status.SUBMITTED, Status.REVIEWING, Status.APPROVED) or not (why := lateness(task, now)):
        return None
    return miss_deadline(task, now=now, reason=why)


def again(gate: Gate, task: Task, *, now: int, **fields: object) -> Gate:
    """Return a new gate for the same subject, without votes."""
    number = _next_number(review_of(task))
    fresh: dict[str, object] = {
        "id": f"{gate.task_id}.{number}",
        "digest": digest_for(task, gate.policy, number, gate.step, gate.about, code=gate.code),
        "state": GateState.OPEN,
        "decided_at": None,
        "votes": (),
        "changes": (),
        "fired": (),
        "early": (),
        "opened_at": now,
        "is_automatic": False,
        "generation": task.generation,
        "after_attempt": task.attempt,
        "after_throttles": task.throttles,
    }
    return structs.replace(gate, **(fresh | fields))


def _next_number(review: Review) -> int:
    return max((gate.number for gate in review.gates), default=0) + 1


def requested(gate: Gate, *, now: int) -> Event:
    """Return the event with all that `proof` needs. The subject of a step and changed arguments might contain secrets,
    so they are left out."""
    bare = structs.replace(gate, state=GateState.OPEN, votes=(), early=(), about=None, changes=())
    whole: dict[str, object] = msgspec.to_builtins(bare)
    return Event(type=APPROVAL_REQUESTED, at=now, task_id=gate.task_id, payload={"approval": gate.id, "gate": whole})


def reconsidered(gate: Gate, people: ReviewerDirectory, *, now: int) -> tuple[Gate, tuple[Event, ...]]:
    """Fire the escalation steps of an undecided gate that are due, each once, and update whether the gate is blocked.

    If the remaining accounts cannot meet the rules of a policy, its next step fires early.
    """
    events: list[Event] = []
    for number, step in enumerate(gate.policy.steps):
        is_due = now >= gate.opened_at + step.after_ms
        is_stuck = not is_due and _helps(gate, step, people.standing(gate, now))
        if number in gate.fired or not (is_due or is_stuck):
            continue
        early = (*gate.early, number) if is_stuck else gate.early
        gate = structs.replace(gate, fired=(*gate.fired, number), early=early)
        events.append(escalated(gate, number, now=now))
    state = people.standing(gate, now).state
    if state is GateState.BLOCKED and gate.state is not GateState.BLOCKED:
        missing = list(people.standing(gate, now).missing)
        events.append(gate_event(gate, APPROVAL_BLOCKED, now=now, missing=missing))
    if state in (GateState.OPEN, GateState.BLOCKED):
        gate = structs.replace(gate, state=state)
    return gate, tuple(events)


def is_escalating(gate: Gate, standing: GateStanding, *, now: int) -> bool:
    """Whether an escalation step of a gate fires now."""
    return any(
        number not in gate.fired and (now >= gate.opened_at + step.after_ms or _helps(gate, step, standing))
        for number, step in enumerate(gate.policy.steps)
    )


def _helps(gate: Gate, step: PolicyStep, standing: GateStanding) -> bool:
    """Whether this step adds to a rule for which there are too few people."""
    return any(step.policy in gate.policy.rules[number].escalating for number in standing.unmet)


def escalated(gate: Gate, number: int, *, now: int) -> Event:
    """Return the event of an escalation step: from now on, more accounts can vote."""
    step = gate.policy.steps[number]
    users, roles, is_early = sorted(step.users), sorted(step.roles), number in gate.early
    return gate_event(gate, APPROVAL_ESCALATED, now=now, step=number, users=users, roles=roles, is_early=is_early)


def gate_event(gate: Gate, kind: str, *, now: int, actor: str | None = None, **payload: object) -> Event:
    """Return an event about a gate."""
    about = {"approval": gate.id, "digest": gate.digest, **payload}
    return Event(type=kind, at=now, task_id=gate.task_id, actor=actor, payload=about)


def vote_event(gate: Gate, vote: Vote, kind: str) -> Event:
    """Return the event of a vote, with what was known of the voter at that time."""
    known: dict[str, object] = msgspec.to_builtins(vote)
    return gate_event(gate, kind, now=vote.at, actor=vote.voter, vote=known)


def names_of(accounts: Sequence[str], most: int = 5) -> str:
    """Format a few account names for a message."""
    listed = ", ".join(accounts[:most])
    return f"{listed} and {len(accounts) - most} more" if len(accounts) > most else listed or "no one"
