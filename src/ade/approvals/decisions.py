"""State changes of a task under review other than votes, and the check of its approval before it runs.

Pure functions: they take loaded records and return the Change to write.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct, structs

from ade.accounts.model import SYSTEM, Directory
from ade.approvals.digest import digest_at, digest_for, remembered
from ade.approvals.errors import ApprovalNotGood, GateClosed, NoGate
from ade.approvals.gates import still_stands
from ade.approvals.model import (
    AFTER_THE_FACT,
    MAX_POLICY_MS,
    Bypass,
    Comment,
    Decision,
    Gate,
    GateState,
    Review,
    closed_review,
)
from ade.approvals.review_requests import (
    TOO_LATE,
    ApprovalRequirement,
    ReviewerDirectory,
    Standings,
    again,
    ended_late,
    gate_event,
    is_escalating,
    open_gate,
    reconsidered,
    requested,
    requested_by,
    review_of,
)
from ade.approvals.risk import ASSESSED_BY
from ade.approvals.rulebook import USUAL
from ade.approvals.votes import approved, gate_for, responded
from ade.errors import InvalidTask, NotPermitted
from ade.events.model import APPROVAL_COMMENTED, APPROVAL_DISMISSED, APPROVAL_STALE, APPROVAL_UNBLOCKED, Event
from ade.tasks.changes import QUEUED, Change, change
from ade.tasks.lifecycle import Status, Verb
from ade.tasks.model import Task
from ade.tasks.outcomes import Withheld

_LONGEST_COMMENT, _MOST_COMMENTS, _MOST_OF_ONE = 4_000, 200, 20
ANOTHER = "it is not what was approved: its digest is another one"
_NOT_HEARD = frozenset({GateState.CHANGES_REQUESTED, GateState.SUPERSEDED})
NO_ANSWER, GREW_OLD = "no one answered in time", "the approval is too old"


def submit(task: Task, *, has_preview: bool, preview_id: str | None, now: int, actor: str | None = None) -> Change:
    """Freeze a draft. Earlier votes on it no longer count."""
    task_as_read, task = task, requested_by(structs.replace(task, review=remembered(task)), actor)
    gate = review_of(task).gate
    # A gate where changes were requested stays open, because the edit is compared with it.
    stays_open = gate is not None and gate.state is GateState.CHANGES_REQUESTED
    review = structs.replace(
        review_of(task) if stays_open else closed_review(review_of(task), GateState.SUPERSEDED, now),
        has_preview=has_preview,
        preview_id=preview_id,
        errors=(),
    )
    return change(task_as_read, Verb.SUBMIT, now=now, actor=actor, review=review, preview=None, submitted_at=now)


def send_back(task: Task, errors: tuple[str, ...], *, now: int) -> Change:
    """Return a task that cannot be approved as it is to its author, who can correct it."""
    review = structs.replace(review_of(task), errors=errors, preview_id=None)
    return change(
        task, Verb.ASSESS, now=now, target=Status.DRAFT, payload={"errors": list(errors)}, also={"review": review}
    )


def assess(
    task: Task, preview: Raw | None, demand: ApprovalRequirement, people: ReviewerDirectory, *, now: int
) -> Change:
    """Open the gate of a task whose preview, if any, succeeded: reviewers are asked, or the policy approves
    automatically.

    If a reviewer requested changes and the task is unchanged, it goes back to its author again.
    """
    previewed = structs.replace(task, preview=preview)
    if (refused := _unchanged_since(previewed)) is not None:  # the requester can vote again, or an admin dismiss it
        who = ", ".join(_asking(refused))
        return send_back(task, (f"{who} asked for changes, and nothing relevant has changed; edit it first",), now=now)
    gate, events = open_gate(previewed, demand, people, now=now)
    before = closed_review(review_of(task), GateState.SUPERSEDED, now)
    review = structs.replace(before.with_gate(gate), editors=(), errors=(), signed=None)
    fields: dict[str, object] = {
        "review": review,
        "digest": gate.digest,
        "risk": assessment_record(demand, now),
        "author_name": task.author_name or people.name_of(task.author_id or "") or None,
        **({} if preview is None else {"preview": preview}),
    }
    if gate.is_automatic:
        ready = structs.replace(task, review=review)
        return approved(ready, gate, Verb.ASSESS, now=now, actor=SYSTEM, first_events=events, also=fields)
    payload: dict[str, object] = {"score": demand.risk.score, "level": demand.risk.level, "approval": gate.id}
    return change(task, Verb.ASSESS, now=now, payload=payload, more_events=events, also=fields)


def _unchanged_since(task: Task) -> Gate | None:
    """Return the gate where changes to exactly this digest were requested and not made, or None."""
    for gate in review_of(task).gates:
        if gate.state in _NOT_HEARD and _asking(gate) and gate.digest == digest_at(task, gate):
            return gate
    return None


def _asking(gate: Gate) -> list[str]:
    newest = {vote.person or vote.voter: vote for vote in gate.votes if not vote.is_dismissed}
    return sorted(who for who, vote in newest.items() if vote.decision is Decision.REQUEST_CHANGES)


def born_held(task: Task, demand: ApprovalRequirement, people: ReviewerDirectory, *, now: int) -> Task:
    """Return a new task with its gate, so that no worker can claim it before it is approved."""
    gate, _ = open_gate(task, demand, people, now=now)
    status = Status.PENDING if gate.is_automatic else Status.REVIEWING
    review = review_of(task).with_gate(gate, editors=(), signed=None)
    risk = assessment_record(demand, now)
    name = task.author_name or people.name_of(task.author_id or "") or None
    return structs.replace(task, status=status, review=review, digest=gate.digest, risk=risk, author_name=name)


def assessment_record(demand: ApprovalRequirement, now: int) -> dict[str, object]:
    """Return the assessment of one digest as it is stored in the task, and whether it passes without people."""
    about = {"auto_approvable": demand.is_automatic, "assessed_at": now, "assessed_by": ASSESSED_BY}
    return {**msgspec.to_builtins(demand.risk), **about}


def advance_review(
    task: Task, people: ReviewerDirectory, *, now: int, standings: Standings | None = None
) -> Change | None:
    """Return what time, or a change of accounts, does to a task under review; None if nothing. `standings` speeds up
    the evaluation of many."""
    gate, late = review_of(task).gate, ended_late(task, now)
    if late is not None or gate is None or task.status not in (Status.REVIEWING, Status.APPROVED):
        return late
    if task.status is Status.APPROVED:
        is_old = gate.valid_until is not None and now >= gate.valid_until
        return _expired(task, gate, GREW_OLD, now=now) if is_old else None
    if now >= gate.expires_at:
        return _expired(task, gate, NO_ANSWER, now=now)
    standing = people.standing(gate, now) if standings is None else standings.of(gate)
    state = standing.state
    if state is gate.state and not is_escalating(gate, standing, now=now):
        return None
    if state is GateState.APPROVED:  # a recorded vote counts again, or a delegation meets a rule
        closed = structs.replace(gate, state=state, decided_at=now)
        return approved(task, closed, Verb.APPROVE, now=now, actor=SYSTEM)
    if state is GateState.REJECTED:  # a rejection counts again, for example after its voter was reactivated
        return _turned_down(task, gate, now=now)
    if state is GateState.RESPONDED:
        return responded(task, structs.replace(gate, state=state, decided_at=now), now=now, actor=SYSTEM)
    return _escalated(task, gate, people, now=now)


def _escalated(task: Task, gate: Gate, people: ReviewerDirectory, *, now: int) -> Change | None:
    after, events = reconsidered(gate, people, now=now)
    if after == gate:
        return None
    if gate.state is GateState.BLOCKED and after.state is GateState.OPEN:
        events = (*events, gate_event(after, APPROVAL_UNBLOCKED, now=now))
    return change(task, Verb.REVIEW, now=now, more_events=events, review=review_of(task).with_gate(after))


def _turned_down(task: Task, gate: Gate, *, now: int) -> Change:
    review = review_of(task).with_gate(structs.replace(gate, state=GateState.REJECTED, decided_at=now))
    payload: dict[str, object] = {"approval": gate.id, "reason": "a rejection counts again"}
    why = "rejected: a reviewer who had rejected it can vote again"
    return change(task, Verb.REJECT, now=now, actor=SYSTEM, payload=payload, review=review, finished_at=now, reason=why)


def _expired(task: Task, gate: Gate, reason: str, *, now: int) -> Change:
    review = review_of(task).with_gate(
        structs.replace(gate, state=GateState.EXPIRED, decided_at=gate.decided_at or now)
    )
    payload: dict[str, object] = {"approval": gate.id, "reason": reason}
    why = f"expired: {reason}"
    return change(task, Verb.EXPIRE, now=now, payload=payload, review=review, finished_at=now, reason=why)


def start(task: Task, directory: Directory, *, now: int, actor: str) -> Change:
    """Move an approved task to its queue. Raises ApprovalNotGood."""
    gate = gate_for(task)
    if task.status is Status.APPROVED and (why := not_good(task, gate, directory, now=now)):
        raise ApprovalNotGood(f"task {task.id} was not started: {why}")
    return change(
        task,
        Verb.START,
        now=now,
        actor=actor,
        payload=gate_event(gate, QUEUED, now=now, actor=actor).payload,
        run_after=max(task.run_after, review_of(task).not_before or 0),
    )


def not_good(task: Task, gate: Gate, directory: Directory, *, now: int, is_resumed: bool = False) -> str:
    """Return why this approval does not allow the task to run now; empty if it does. A resumed run began in time."""
    if gate.state is not GateState.APPROVED:
        return f"approval {gate.id} is {gate.state}"
    if not gate.step and not gate.digest == digest_at(task, gate) == task.digest:
        return ANOTHER
    until = review_of(task).not_after
    if not is_resumed and until is not None and now >= until:
        return TOO_LATE
    if gate.is_automatic:
        is_old = gate.valid_until is not None and now >= gate.valid_until and not is_resumed
        return GREW_OLD if is_old else ""
    moment = min(now, (gate.valid_until or now) - 1) if is_resumed else now
    if not still_stands(gate, directory, moment):
        is_old = gate.valid_until is not None and moment >= gate.valid_until
        return GREW_OLD if is_old else "not enough of those who approved it may still do so"
    return ""


def revoke(task: Task, people: ReviewerDirectory, *, now: int, actor: str, reason: str) -> Change:
    """Revoke an approval while no run holds the task; reviewers are asked again. Raises GateClosed."""
    gate = gate_for(task)
    if gate.state is not GateState.APPROVED or task.status not in (Status.APPROVED, Status.PENDING):
        raise GateClosed(f"approval {gate.id} is {gate.state} and the task {task.status}; there is nothing to revoke")
    withdrawn = structs.replace(gate, state=GateState.REVOKED)
    before = structs.replace(task, review=review_of(task).with_gate(withdrawn))
    fresh = again(gate, task, now=now)
    if gate.step:  # the approval of the whole task stands, and a retry does not become a run that waited at the step
        fresh = structs.replace(fresh, after_attempt=gate.after_attempt, after_throttles=gate.after_throttles)
    newest, more = reconsidered(fresh, people, now=now)
    return change(
        task,
        Verb.REVOKE,
        now=now,
        actor=actor,
        payload={"approval": gate.id, "digest": gate.digest, "reason": reason},
        more_events=(requested(newest, now=now), *more),
        review=review_of(before).with_gate(newest),
        digest=task.digest if gate.step else newest.digest,
        approved_at=None,
    )


def break_glass(task: Task, *, now: int, actor: str, reason: str) -> Change:
    """Run a task without approval. Raises InvalidTask and GateClosed.

    The bypass is recorded, never counts as an approval, and opens another gate for a review after the fact.
    """
    if not reason.strip():
        raise InvalidTask("give a reason for the bypass; it is stored with the task")
    gate = gate_for(task)
    if not gate.is_undecided:
        raise GateClosed(f"approval {gate.id} is {gate.state} already; nothing was changed")
    review = review_of(task)
    unhurried = structs.replace(gate.policy, expires_after_ms=MAX_POLICY_MS, steps=())
    later = again(
        gate,
        task,
        now=now,
        digest=gate.digest,
        policy=unhurried,
        step=AFTER_THE_FACT,
        conflicts=gate.conflicts | {actor},
    )
    cancelled = structs.replace(gate, state=GateState.CANCELLED, decided_at=now, is_bypassed=True)
    # The closed gate stays the newest, so that the task does not wait for the review after the fact.
    gates = (*(each for each in review.gates if each.id != gate.id), later, cancelled)
    bypass = Bypass(by=actor, at=now, reason=reason, digest=gate.digest)
    return change(
        task,
        Verb.BREAK_GLASS,
        now=now,
        actor=actor,
        payload={"approval": gate.id, "digest": gate.digest, "reason": reason},
        more_events=(requested(later, now=now), gate_event(cancelled, QUEUED, now=now, actor=actor)),
        review=structs.replace(review, gates=gates, bypass=bypass),
        run_after=max(task.run_after, review.not_before or 0),
    )


def comment(task: Task, text: str, *, now: int, actor: str) -> Change:
    """Add a comment, which is not a vote. Raises InvalidTask and NoGate."""
    if not text.strip() or len(text) > _LONGEST_COMMENT:
        raise InvalidTask(f"a comment has 1 to {_LONGEST_COMMENT} characters")
    review = review_of(task)
    if len(review.comments) >= _MOST_COMMENTS:
        raise InvalidTask(f"a task has at most {_MOST_COMMENTS} comments; the event log has them all")
    if sum(each.by == actor for each in review.comments) >= _MOST_OF_ONE:
        raise InvalidTask(f"an account writes at most {_MOST_OF_ONE} comments on a task; others may have questions too")
    event = gate_event(gate_for(task), APPROVAL_COMMENTED, now=now, actor=actor, text=text)
    after = structs.replace(review, comments=(*review.comments, Comment(by=actor, at=now, text=text)))
    return change(task, Verb.REVIEW, now=now, more_events=(event,), review=after)


def dismiss(task: Task, voter: str, reason: str, people: ReviewerDirectory, *, now: int, actor: str) -> Change:
    """Dismiss a reviewer's request for changes. Accounts with an author conflict cannot do that."""
    gate = gate_for(task)
    if gate.state is not GateState.CHANGES_REQUESTED or task.status is not Status.DRAFT:
        raise NoGate(f"no request for changes blocks task {task.id}")
    if not reason.strip():
        raise InvalidTask("give a reason for dismissing the request for changes; it is stored with the task")
    if people.directory.who(actor) in {people.directory.who(each) for each in gate.conflicts}:
        raise NotPermitted(f"{actor} is involved in this task and cannot dismiss requests of others")
    votes = tuple(
        structs.replace(vote, is_dismissed=True) if vote.voter == voter and not vote.is_dismissed else vote
        for vote in gate.votes
    )
    if votes == gate.votes:
        raise NoGate(f"{voter} has not requested changes here")
    if now >= gate.expires_at:
        raise GateClosed(f"approval {gate.id} has expired: no one answered in time; submit it again")
    open_again = structs.replace(gate, votes=votes, state=GateState.OPEN)
    state = people.standing(open_again, now).state
    event = gate_event(gate, APPROVAL_DISMISSED, now=now, actor=actor, voter=voter, reason=reason)
    after = structs.replace(open_again, state=state)
    review = review_of(task).with_gate(after)
    if state is GateState.CHANGES_REQUESTED:
        return change(task, Verb.REVIEW, now=now, more_events=(event,), review=review)
    ready = structs.replace(task, review=review)
    if state is GateState.REJECTED:
        return _turned_down(ready, after, now=now)
    if state is GateState.RESPONDED:
        closed = structs.replace(after, decided_at=now)
        return responded(ready, closed, now=now, actor=actor, first_events=(event,))
    if state is GateState.APPROVED:
        closed = structs.replace(after, decided_at=now)
        return approved(ready, closed, Verb.REOPEN, now=now, actor=actor, first_events=(event,))
    payload: dict[str, object] = {"approval": gate.id}
    return change(task, Verb.REOPEN, now=now, actor=actor, first_events=(event,), payload=payload, review=review)


# Before a run starts: whether its approval is still valid, and how the task waits if it is not.


STALE = "what it would change has changed since the preview"


class Clearance(Struct, frozen=True):
    """Whether a task is approved exactly as it is. `reason` says why not; it is also empty if no approval was
    requested."""

    is_good: bool
    reason: str = ""


def meets(gate: Gate, required: Sequence[str]) -> bool:
    """Whether a gate was opened under these policies. USUAL is met by any that its author did not choose."""
    return all(gate.required if policy == USUAL else policy in gate.policies for policy in required)


def code_change(approved: str, version: str, *, is_required: bool = False) -> str:
    """Return why the approval of one version of the code does not cover another; empty if it does. An approval without
    a version, from before any worker had registered the task, covers every version, unless one is required: then no
    approval covers code without a version."""
    if approved and approved != version:
        return f"the code has changed since it was approved (version {version or 'unknown'}, approved {approved})"
    if approved or not is_required:
        return ""
    if not version:
        return "a version of the code is required, and its worker reports none; declare one (version=...)"
    return f"no version of the code was known when it was approved (version {version})"


def code_change_since(task: Task, version: str) -> str:
    """Return how the code has changed since the task was last approved; empty if it was not, or has not changed."""
    gate = whole_gate(task)
    if gate is None or gate.state not in (GateState.APPROVED, GateState.STALE):
        return ""
    return code_change(gate.code, version)


def clearance_of(
    task: Task,
    directory: Directory,
    *,
    now: int,
    required: Sequence[str] = (),
    version: str = "",
    needs_version: bool = False,
) -> Clearance:
    """Check the approval against a digest recomputed from the record that would run. `required` is what the rules
    demand now, `version` that of the code that would run. Raises InvalidSubject."""
    gate = whole_gate(task)
    if gate is None:
        return Clearance(False)
    if gate.generation != task.generation:
        return Clearance(False, "it was approved once, and has run")
    if (gate.state is GateState.APPROVED or gate.is_bypassed) and (
        changed := code_change(gate.code, version, is_required=needs_version)
    ):
        return Clearance(False, changed)
    if is_bypassed(task, gate):
        return Clearance(True)
    if not meets(gate, required):
        return Clearance(False, f"the rules require more by now than {', '.join(gate.policies)}: {', '.join(required)}")
    why = not_good(task, gate, directory, now=now, is_resumed=is_resumed(task, gate))
    return Clearance(not why, why)


def is_bypassed(task: Task, gate: Gate) -> bool:
    """Whether the approval was bypassed for exactly this digest, and no reviewer has rejected that since."""
    return _stays_bypassed(task, gate) and gate.digest == digest_at(task, gate)


def _stays_bypassed(task: Task, gate: Gate) -> bool:
    afterwards = [each for each in review_of(task).gates if (each.step, each.digest) == (AFTER_THE_FACT, gate.digest)]
    return gate.is_bypassed and all(each.state is not GateState.REJECTED for each in afterwards)


def whole_gate(task: Task) -> Gate | None:
    """Return the newest gate for the task as a whole, or None."""
    gates = [gate for gate in review_of(task).gates if not gate.step]
    return gates[-1] if gates else None


def is_resumed(task: Task, gate: Gate) -> bool:
    """Whether the run that starts now resumes one that began under this gate and waited at a step. A retry does not:
    every failure counts as an attempt or a throttle, and the next run must be approved like a first one."""
    runs = (task.attempt, task.throttles)
    return any((step.after_attempt + 1, step.after_throttles) == runs for step in steps_under(task, gate))


def steps_under(task: Task, gate: Gate) -> list[Gate]:
    """Return the gates of steps that runs under this gate have reached."""
    gates = review_of(task).gates
    return [each for each in gates[[each.id for each in gates].index(gate.id) + 1 :] if each.is_step]


def reassessed(task: Task, reason: str, *, now: int, preview_id: str | None = None) -> Withheld:
    """Send the task back to risk assessment and policy selection, after a new preview if there is an ID for one.

    Earlier approvals no longer count. It can pass automatically, which is recorded, unless it was tampered with.
    """
    task = structs.replace(task, review=remembered(task))
    review, events = _without_approval(task, whole_gate(task), reason, now=now)
    if reason == ANOTHER:
        review = closed_review(review_of(task), GateState.REVOKED, now)
    review = structs.replace(review, has_preview=preview_id is not None, preview_id=preview_id)
    fields = {"review": review, "preview": None, "digest": None}
    return Withheld(reason=reason, status=Status.SUBMITTED, events=events, fields=fields, has_begun=False)


def _without_approval(task: Task, gate: Gate | None, reason: str, *, now: int) -> tuple[Review, tuple[Event, ...]]:
    """Return the review in which this gate and the newest one are stale, and the event if the gate was approved."""
    review = closed_review(review_of(task), GateState.STALE, now)
    if gate is None or gate.state is not GateState.APPROVED:
        return review, ()
    stale = structs.replace(gate, state=GateState.STALE)
    return review.with_gate(stale), (gate_event(gate, APPROVAL_STALE, now=now, reason=reason, code=gate.code),)


def requested_again(task: Task, demand: ApprovalRequirement, people: ReviewerDirectory, *, now: int) -> Withheld:
    """Request approval before the task runs, or continues."""
    task = structs.replace(task, review=remembered(task))
    before = step_gate(task, demand.step, demand.about) if demand.step else whole_gate(task)
    stale, earlier = task, tuple[Event, ...]()
    if not demand.step or (before is not None and code_change(before.code, demand.code)):
        review, earlier = _without_approval(task, before, demand.reason, now=now)
        stale = structs.replace(task, review=review)
    counted = structs.replace(stale, attempt=task.attempt - 1)  # the run that reaches the gate does not count
    gate, events = open_gate(counted, demand, people, now=now)
    fields: dict[str, object] = {"review": review_of(stale).with_gate(gate, editors=(), signed=None)}
    if not demand.step:
        fields |= {"digest": gate.digest, "risk": assessment_record(demand, now)}
    reason = demand.reason or "approval is demanded"
    return Withheld(reason=reason, events=(*earlier, *events), fields=fields, has_begun=bool(demand.step))


def step_gate(task: Task, step: str, about: object) -> Gate | None:
    """Return the gate for exactly this step of a run, or None."""
    for gate in reversed(review_of(task).gates):
        is_its_own = (gate.step, gate.generation) == (step, task.generation)
        if is_its_own and gate.digest == digest_for(task, gate.policy, gate.number, step, about, code=gate.code):
            return gate
    return None


def edited_gate(task: Task, gate: Gate) -> Gate | None:
    """Return the newest gate for the arguments that a response has edited, or None if there is none."""
    response = gate.response
    first = next((each for each in review_of(task).gates if response is not None and each.id == response.edited), None)
    found = None if first is None else step_gate(task, gate.step, first.about)
    return found if found is not None and found.number > gate.number else None


def may_go_on(task: Task, gate: Gate, directory: Directory, *, now: int, version: str = "") -> bool:
    """Whether this step of a run is approved, for this version of its code, and the approval is still valid."""
    if code_change(gate.code, version):
        return False
    if _stays_bypassed(task, gate):
        return True
    unlimited = structs.replace(task, review=structs.replace(review_of(task), not_after=None))  # it has started
    return not not_good(unlimited, gate, directory, now=now, is_resumed=is_resumed(task, gate))
