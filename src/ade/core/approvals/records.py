"""What is kept about the approval of a task, inside its record: gates, the votes at them, and what else people said."""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any

from msgspec import Struct, structs

from ade.core.approvals.delegations import Chain, Subject
from ade.core.approvals.policies import Policy


class GateState(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    OPEN = auto()
    BLOCKED = auto()  # nobody is left who could meet the rules: it never passes by itself
    CHANGES_REQUESTED = auto()
    APPROVED = auto()
    REJECTED = auto()
    EXPIRED = auto()
    CANCELLED = auto()
    SUPERSEDED = auto()  # the task was edited: another digest, another gate
    CONSUMED = auto()  # the task was started under it
    STALE = auto()  # what was previewed has changed since, or the approval is no longer good
    REVOKED = auto()


AFTER_THE_FACT = "after the fact"  # the step of a gate that was opened because another one was bypassed
UNDECIDED = frozenset({GateState.OPEN, GateState.BLOCKED, GateState.CHANGES_REQUESTED})


class Decision(StrEnum):
    __hash__ = str.__hash__

    APPROVE = auto()
    REJECT = auto()
    REQUEST_CHANGES = auto()


class Vote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody said about one digest; `seq` is the order in which the store took the votes."""

    seq: int
    voter: str
    decision: Decision
    digest: str
    at: int
    chain: Chain = ()  # for whom, if not for himself: from whose slot it is to the voter
    roles: frozenset[str] = frozenset()  # those the voter had, for the record
    owner_roles: frozenset[str] = frozenset()  # those of the one whose slot it is, if that is another
    person: str = ""  # who the voter was, where one human has several accounts
    reason: str = ""
    via: str = ""  # how it was given: cli, http, batch, ...
    is_dismissed: bool = False


class Gate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    task_id: str
    digest: str
    subject: Subject
    policy: Policy
    policies: tuple[str, ...] = ()  # the entries of the rulebook that the policy was made of
    conflicts: frozenset[str]  # author, editors since the last digest, owners of the agent or token: accounts
    opened_at: int
    state: GateState = GateState.OPEN
    decided_at: int | None = None
    votes: tuple[Vote, ...] = ()
    step: str = ""  # of a run that waits in the middle; empty for the task as a whole
    about: Any = None  # what exactly the step is about, as the run said
    reason: str = ""  # why approval is demanded
    generation: int = 1  # of the task: a replay is asked about anew
    after_attempt: int = 0  # runs of the task before this gate was opened
    fired: tuple[int, ...] = ()  # escalation steps that were told
    early: tuple[int, ...] = ()  # those that count before their time, because nobody else can answer
    in_batch: bool = True  # whether one answer may approve it together with others
    is_automatic: bool = False  # approved by the policy itself, as `system`
    is_bypassed: bool = False  # the glass was broken here: never an approval

    @property
    def number(self) -> int:
        """Among the gates of its task, from 1."""
        return int(self.id.rpartition(".")[2])

    @property
    def expires_at(self) -> int:
        return self.opened_at + self.policy.expires_after_ms

    @property
    def valid_until(self) -> int | None:
        """From when on an approval that was not used is none any more."""
        return None if self.decided_at is None else self.decided_at + self.policy.valid_for_ms

    @property
    def is_undecided(self) -> bool:
        return self.state in UNDECIDED

    @property
    def is_over(self) -> bool:
        """Whether nothing hangs on it any more."""
        return not (self.is_undecided or self.is_bypassed or self.state is GateState.APPROVED)


class Comment(Struct, frozen=True, kw_only=True):
    by: str
    at: int
    text: str


class Bypass(Struct, frozen=True, kw_only=True):
    """Somebody broke the glass: this digest runs without approval. Never an approval."""

    by: str
    at: int
    reason: str
    digest: str


class StartMode(StrEnum):
    __hash__ = str.__hash__

    AT_ONCE = auto()
    BY_HAND = auto()


class Review(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All about the approval of one task. The newest gate is the last."""

    gates: tuple[Gate, ...] = ()
    policies: tuple[str, ...] = ()  # named by the task itself or by a guard rule
    editors: tuple[str, ...] = ()  # who changed it since the last gate was opened
    has_preview: bool = False
    preview_id: str | None = None  # the task that makes the preview
    errors: tuple[str, ...] = ()  # why it went back to its author
    start: StartMode = StartMode.AT_ONCE
    not_before: int | None = None  # the window it may start in
    not_after: int | None = None
    comments: tuple[Comment, ...] = ()
    bypass: Bypass | None = None
    reason: str = ""  # why approval is demanded

    @property
    def gate(self) -> Gate | None:
        """The newest gate."""
        return self.gates[-1] if self.gates else None

    def with_gate(self, gate: Gate, **fields: object) -> "Review":
        """The same with the gate of this id as it is given, or as the newest."""
        known = [gate if each.id == gate.id else each for each in self.gates]
        if all(each.id != gate.id for each in self.gates):
            known.append(gate)
        over = [each.id for each in known[:-1] if each.is_over]
        dropped = {*over[: max(0, len(known) - MOST_GATES)]}  # a run that begins anew asks for those that stand
        return structs.replace(self, gates=tuple(each for each in known if each.id not in dropped), **fields)


MOST_GATES = 20  # kept in the record, beside those that stand; the log has all
MOST_STEPS_ASKED = 100  # in one task


def closed_review(review: Review, state: GateState, now: int) -> Review:
    """With its newest gate in this state, if that was undecided or approved."""
    gate = review.gate
    if gate is None or not (gate.is_undecided or gate.state is GateState.APPROVED):
        return review
    return review.with_gate(structs.replace(gate, state=state, decided_at=gate.decided_at or now))


def edited(review: Review | None, actor: str | None, now: int) -> Mapping[str, object]:
    """What an edit means for the approval: the gate is superseded, and the editor has a hand in the task."""
    if review is None and actor is None:
        return {}
    before = closed_review(review or Review(), GateState.SUPERSEDED, now)
    editors = before.editors if actor is None or actor in before.editors else (*before.editors, actor)
    return {"review": structs.replace(before, editors=editors, errors=())}
