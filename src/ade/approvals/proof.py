"""An audit that recomputes from the event log alone whether every governed task that ran had been approved.

Stored results of votes are not trusted: gates are evaluated again from the policies and votes in the log.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
from msgspec import structs

from ade.accounts.model import USER_ADDED, USER_CHANGED, Account, Directory
from ade.approvals.gates import evaluate
from ade.approvals.model import (
    AFTER_THE_FACT,
    DEEPEST,
    DELEGATION_CREATED,
    DELEGATION_REVOKED,
    MAX_DELEGATION_MS,
    Delegation,
    Gate,
    GateState,
    Subject,
    Vote,
)
from ade.approvals.risk import RiskLevel
from ade.events.model import (
    APPROVAL_APPROVED,
    APPROVAL_DISMISSED,
    APPROVAL_ESCALATED,
    APPROVAL_REJECTED,
    APPROVAL_REQUESTED,
    APPROVAL_RESPONDED,
    Event,
)
from ade.failures import FailureKind
from ade.tasks.changes import BYPASSED, CHANGES_REQUESTED, QUEUED

_VOTES = frozenset({APPROVAL_APPROVED, APPROVAL_REJECTED, APPROVAL_RESPONDED, CHANGES_REQUESTED})
_NEVER_BEGAN = frozenset({FailureKind.DENIED, FailureKind.DEADLINE_PASSED})  # rejected before the handler was called
_RAN = frozenset({"task.succeeded", "task.retry_scheduled", "task.failed", "task.stalled"})
_UNDONE = frozenset({"approval.revoked", "approval.expired", "task.edited", "task.submitted", "task.replayed"})
_VOTE_TAKES_MS = 10_000  # a vote reads delegations before it is written, and one might be revoked in between


@dataclass(slots=True)
class LoggedDelegation:
    """A delegation as it was created, and when it was revoked."""

    record: Delegation
    revoked_at: int | None = None
    tells_cascades: bool = True  # older events do not contain whether it cascades

    def why_not(self, subject: Subject, at: int, *, passed_on: bool) -> str:
        """Return why it did not let the delegate vote about this subject then; empty if it did."""
        if self.revoked_at is not None and at > self.revoked_at + _VOTE_TAKES_MS:
            return "it had been revoked"
        if not self.record.starts_at <= at < self.record.ends_at:
            return "it had not begun" if at < self.record.starts_at else "it had expired"
        if passed_on and self.tells_cascades and not self.record.cascades:
            return "it may not be passed on"
        return "" if self.record.holds(subject, at) else "it does not cover this task"


@dataclass(slots=True)
class _GovernedTask:
    """What the log contains so far about one task that needed approval."""

    gates: dict[str, Gate] = field(default_factory=dict)
    newest: str = ""
    cleared: set[str] = field(default_factory=set)  # gates under which it can run
    bypassed: str = ""  # the digest that was bypassed
    claim_is_good: bool | None = None  # of the current run
    may_be_incomplete: bool = False  # the log starts after the task was created
    unproven: dict[tuple[str, int], str] = field(default_factory=dict)  # by gate and vote: why the chain is not valid

    def counted(self, gate: Gate) -> Gate:
        """Return the gate without the votes whose delegations are not in the log."""
        return structs.replace(
            gate, votes=tuple(vote for vote in gate.votes if (gate.id, vote.seq) not in self.unproven)
        )

    def is_cleared(self) -> bool:
        """Whether the task as a whole is cleared, and the step it waits at, if any."""
        whole = [gate.id for gate in self.gates.values() if not gate.step]
        needed = {self.newest, *whole[-1:]} - {""}
        return needed <= self.cleared


class ApprovalProof:
    """Takes every event in order and reports violations. Keeps only governed tasks in memory."""

    def __init__(self) -> None:
        self._watched: dict[str, _GovernedTask] = {}
        self._roles: dict[str, frozenset[str]] = {}  # of each account, as far as the log contains its changes
        self._inactive: set[str] = set()
        self._added: set[str] = set()  # accounts that are not older than the log
        self._since: int | None = None  # the time of the first event
        self.delegations: dict[str, LoggedDelegation] = {}
        self.starts = 0  # runs of governed tasks that were recomputed
        self.unknown = 0  # starts whose approval is older than the log

    def gates_of(self, task_id: str) -> Mapping[str, Gate]:
        """Return the gates of a task by ID, each with the votes in the log."""
        watched = self._watched.get(task_id)
        return {} if watched is None else watched.gates

    def unproven_votes(self) -> list[str]:
        """Return a line for each vote that names delegations which the log does not confirm."""
        return [
            f"task {task_id}: approval {gate}: {why}"
            for task_id, watched in self._watched.items()
            for (gate, _), why in watched.unproven.items()
        ]

    def add(self, event: Event) -> str | None:
        """Return what is wrong with this event, or None."""
        task_id = event.task_id
        if self._since is None:
            self._since = event.at
        if task_id is None:
            if event.type in (USER_ADDED, USER_CHANGED):
                self._change(event)
            elif event.type in (DELEGATION_CREATED, DELEGATION_REVOKED):
                return self._delegate(event)
            return None
        if event.type == APPROVAL_REQUESTED:
            return self._open(self._watched.setdefault(task_id, _GovernedTask()), event)
        watched = self._watched.get(task_id)
        if watched is None:
            if event.type == QUEUED and "approval" in event.payload:
                self.unknown += 1
            return None
        step = _STEPS.get(event.type)
        return None if step is None else step(self, watched, event)

    def _change(self, event: Event) -> None:
        account, payload = str(event.payload.get("account")), event.payload
        if event.type == USER_ADDED:
            self._added.add(account)
        if isinstance(roles := payload.get("roles"), list):
            self._roles[account] = frozenset(map(str, roles))
        if "is_active" in payload:
            (self._inactive.discard if payload["is_active"] else self._inactive.add)(account)

    def _delegate(self, event: Event) -> str | None:
        payload, conditions = event.payload, event.payload.get("conditions")
        fields = {**payload, **(conditions if isinstance(conditions, dict) else {}), "id": payload.get("delegation")}
        try:
            record = msgspec.convert(fields, Delegation)
        except msgspec.ValidationError as error:
            return f"{event.type} does not contain a valid delegation: {error}"
        logged = self.delegations.setdefault(record.id, LoggedDelegation(record, tells_cascades="cascades" in payload))
        if event.type == DELEGATION_REVOKED:
            logged.revoked_at = event.at
        return None

    def may_be_older(self, delegator: str, delegate: str, at: int) -> bool:
        """Whether a delegation between these accounts could have been created before the log began, and apply then."""
        in_time = self._since is None or at < self._since + MAX_DELEGATION_MS
        return in_time and self._added.isdisjoint((delegator, delegate))

    def _open(self, watched: _GovernedTask, event: Event) -> str | None:
        try:
            gate = msgspec.convert(event.payload["gate"], Gate)
        except (KeyError, msgspec.ValidationError) as error:
            return f"approval.requested of task {event.task_id} does not contain a valid request: {error}"
        watched.gates[gate.id] = structs.replace(gate, votes=(), early=())
        if gate.step != AFTER_THE_FACT:
            watched.newest = gate.id
        return None

    def _vote(self, watched: _GovernedTask, event: Event) -> str | None:
        gate = watched.gates.get(str(event.payload.get("approval")))
        if gate is None:
            return None
        try:
            vote = msgspec.convert(event.payload["vote"], Vote)
        except (KeyError, msgspec.ValidationError) as error:
            return f"{event.type} of task {event.task_id} does not contain a valid vote: {error}"
        watched.gates[gate.id] = structs.replace(gate, votes=(*gate.votes, vote))
        if why := self._why_unproven(gate, vote):
            watched.unproven[gate.id, vote.seq] = f"the vote by {vote.voter} for {vote.chain[0]} is not valid: {why}"
        return None

    def _why_unproven(self, gate: Gate, vote: Vote) -> str:
        """Return which delegation that a vote names the log does not confirm, and why; empty if it confirms all."""
        chain = vote.chain
        if chain and (chain[-1] != vote.voter or len({*chain}) < len(chain) or len(chain) > DEEPEST + 1):
            return f"no delegations form the chain {', '.join(chain)}"
        for delegator, delegate in pairwise(chain):
            reasons = [
                each.why_not(gate.subject, vote.at, passed_on=delegate != vote.voter)
                for each in self.delegations.values()
                if (each.record.delegator, each.record.delegate) == (delegator, delegate)
            ]
            if "" in reasons or self.may_be_older(delegator, delegate, vote.at):
                continue
            why = reasons[-1] if reasons else "it is not in the log"
            return f"a delegation from {delegator} to {delegate} was needed, and {why}"
        return ""

    def _dismiss(self, watched: _GovernedTask, event: Event) -> str | None:
        gate = watched.gates.get(str(event.payload.get("approval")))
        if gate is not None:
            votes = tuple(
                structs.replace(vote, is_dismissed=True) if vote.voter == event.payload.get("voter") else vote
                for vote in gate.votes
            )
            watched.gates[gate.id] = structs.replace(gate, votes=votes)
        return None

    def _escalate(self, watched: _GovernedTask, event: Event) -> str | None:
        gate, step = watched.gates.get(str(event.payload.get("approval"))), event.payload.get("step")
        if gate is not None and event.payload.get("is_early") and isinstance(step, int):
            watched.gates[gate.id] = structs.replace(gate, early=(*gate.early, step))
        return None

    def _bypass(self, watched: _GovernedTask, event: Event) -> str | None:
        watched.bypassed = str(event.payload.get("digest"))
        gate = watched.gates.get(str(event.payload.get("approval")))
        if gate is not None:
            watched.gates[gate.id] = structs.replace(gate, is_bypassed=True)
        return None

    def _undo(self, watched: _GovernedTask, _event: Event) -> str | None:
        watched.cleared.clear()
        watched.bypassed = ""
        return None

    def _queue(self, watched: _GovernedTask, event: Event) -> str | None:
        """The task joins its queue under a gate, which the votes in the log must meet."""
        gate = watched.gates.get(str(event.payload.get("approval")))
        if gate is None:
            watched.may_be_incomplete = True
            return None
        if event.payload.get("digest") != gate.digest:
            return f"task {event.task_id} was queued with another digest than that of approval {gate.id}"
        if watched.bypassed != gate.digest and (why := self._not_met(watched.counted(gate), event.at)):
            why = "; ".join([why, *(doubt for (of, _), doubt in watched.unproven.items() if of == gate.id)])
            return f"task {event.task_id} was queued under approval {gate.id}, which was not met: {why}"
        watched.cleared.add(gate.id)
        return None

    def _claim(self, watched: _GovernedTask, _event: Event) -> str | None:
        watched.claim_is_good = watched.is_cleared()
        return None

    def _hold(self, watched: _GovernedTask, _event: Event) -> str | None:
        watched.claim_is_good = None
        return None

    def _ran(self, watched: _GovernedTask, event: Event) -> str | None:
        is_good, watched.claim_is_good = watched.claim_is_good, None
        if is_good is None or event.payload.get("kind") in _NEVER_BEGAN:
            return None
        if watched.may_be_incomplete:
            self.unknown += 1
            return None
        self.starts += 1
        return None if is_good else f"task {event.task_id} ran without an approval that was met ({event.type})"

    def _not_met(self, gate: Gate, at: int) -> str:
        """Return why this gate does not pass; empty if it does. Accounts are as the log says they are by
        now; where it does not contain their roles, as the votes recorded them."""
        if gate.is_automatic:
            high = gate.subject.level in (RiskLevel.HIGH, RiskLevel.CRITICAL)
            return "a policy approved a high risk by itself" if high else ""
        accounts: dict[str, Account] = {}
        for vote in gate.votes:
            for owner in vote.chain[:1]:
                accounts.setdefault(owner, self._account(owner, vote.owner_roles, vote.owner_person))
        for vote in gate.votes:  # an account's own vote is the better source
            accounts[vote.voter] = self._account(vote.voter, vote.roles, vote.person)
        unverified = tuple(name for name in gate.unverified if name not in self._added)  # others have accounts by now
        undecided = structs.replace(gate, state=GateState.OPEN, unverified=unverified)
        standing = evaluate(undecided, Directory(accounts.values()), (), at)
        if standing.state is GateState.APPROVED or (standing.state is GateState.RESPONDED and gate.step):
            return ""  # after a response, a run continues without the step
        return f"it was {standing.state}, with {', '.join(standing.missing) or 'nothing'} missing"

    def _account(self, account: str, recorded: frozenset[str], person: str = "") -> Account:
        roles = self._roles.get(account, recorded)
        return Account(id=account, person=person, roles=roles, is_active=account not in self._inactive)


_STEPS: Mapping[str, Callable[[ApprovalProof, _GovernedTask, Event], str | None]] = {
    **dict.fromkeys(_VOTES, ApprovalProof._vote),
    **dict.fromkeys(_RAN, ApprovalProof._ran),
    **dict.fromkeys(_UNDONE, ApprovalProof._undo),
    APPROVAL_DISMISSED: ApprovalProof._dismiss,
    APPROVAL_ESCALATED: ApprovalProof._escalate,
    BYPASSED: ApprovalProof._bypass,
    QUEUED: ApprovalProof._queue,
    "task.claimed": ApprovalProof._claim,
    "task.held": ApprovalProof._hold,
    "task.released": ApprovalProof._hold,
    "task.deferred": ApprovalProof._hold,
}
