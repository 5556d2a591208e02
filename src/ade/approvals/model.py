"""What is kept about the approval of a task, inside its record: gates, the votes at them, and what else people said."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum, auto
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct, structs

from ade.accounts.model import Account, InvalidDelegation
from ade.approvals.errors import InvalidPolicy
from ade.approvals.risk import RiskLevel

# Who answers for whom: for a while, under conditions, and never in a ring.


MAX_DELEGATION_MS = 90 * 86_400_000
DEEPEST = 3

DELEGATION_CREATED, DELEGATION_REVOKED = "delegation.created", "delegation.revoked"
CYCLE_FOUND = "delegation.ring_found"
_WILD = re.compile(r"[*?\[]")

Chain = tuple[str, ...]  # from whose slot it is to whoever answers, both included


class Subject(Struct, frozen=True, kw_only=True):
    """What of a task the conditions of delegations and policies look at."""

    name: str
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    level: RiskLevel = RiskLevel.LOW
    task_id: str = ""


class Delegation(Struct, frozen=True, kw_only=True):
    """`delegator` lets `delegate` answer in his place. Empty conditions mean everything."""

    id: str
    delegator: str
    delegate: str
    starts_at: int
    ends_at: int
    cascades: bool = False  # whether the delegate may pass it on
    is_revoked: bool = False
    names: frozenset[str] = frozenset()  # `*`, `?` and `[...]` stand for others, as in names of files
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    from_level: RiskLevel = RiskLevel.LOW
    to_level: RiskLevel = RiskLevel.CRITICAL
    task_id: str = ""  # for this one task alone

    def holds(self, subject: Subject, now: int) -> bool:
        """Judged when somebody votes, by the store's clock."""
        return (
            not self.is_revoked
            and self.starts_at <= now < self.ends_at
            and (not self.names or any(_fits(subject.name, pattern) for pattern in self.names))
            and (not self.tags or not self.tags.isdisjoint(subject.tags))
            and (not self.resource_types or not self.resource_types.isdisjoint(subject.resource_types))
            and self.from_level.rank <= subject.level.rank <= self.to_level.rank
            and self.task_id in ("", subject.task_id)
        )


def check_delegation(new: Delegation, others: Sequence[Delegation]) -> None:
    """Raise InvalidDelegation for one that nobody could ever use, or that would close a ring."""
    if new.delegator == new.delegate:
        raise InvalidDelegation("nobody delegates to himself")
    if not new.starts_at < new.ends_at <= new.starts_at + MAX_DELEGATION_MS:
        raise InvalidDelegation("a delegation ends after it starts, and at most 90 days later")
    if new.from_level.rank > new.to_level.rank:
        raise InvalidDelegation(f"no risk is from {new.from_level} to {new.to_level}; from_level is the lower one")
    if closes_cycle(new, others):
        raise InvalidDelegation(f"{new.delegate} has delegated to {new.delegator} already, directly or through others")
    for other in others:
        if _contradict(new, other):
            raise InvalidDelegation(
                f"{new.delegator} has delegated some of this to {other.delegate} already (delegation {other.id});"
                " revoke that one, or choose another time or other conditions"
            )


def closes_cycle(new: Delegation, others: Sequence[Delegation]) -> bool:
    """Whether, with this one, somebody would answer for himself through others."""
    return new.delegator in _reachable(new.delegate, new, others)


def _contradict(one: Delegation, other: Delegation) -> bool:
    """Whether one person has handed the same thing to two others at once."""
    return (
        one.delegator == other.delegator
        and one.delegate != other.delegate
        and not other.is_revoked
        and _at_once(one, other)
        and (one.task_id == other.task_id or not one.task_id or not other.task_id)
        and _share_names(one.names, other.names)
        and _share(one.tags, other.tags)
        and _share(one.resource_types, other.resource_types)
        and one.from_level.rank <= other.to_level.rank
        and other.from_level.rank <= one.to_level.rank
    )


def _at_once(one: Delegation, other: Delegation) -> bool:
    return one.starts_at < other.ends_at and other.starts_at < one.ends_at


def _share(some: frozenset[str], others: frozenset[str]) -> bool:
    return not some or not others or not some.isdisjoint(others)


def _share_names(some: frozenset[str], others: frozenset[str]) -> bool:
    return not some or not others or any(_may_meet(one, other) for one in some for other in others)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _may_meet(one: str, other: str) -> bool:
    """Whether some name may fit both. Of two patterns only their plain beginnings are compared: rather yes than no."""
    if _fits(one, other) or _fits(other, one):
        return True
    if not _WILD.search(one) or not _WILD.search(other):
        return False
    begin, beginning = _WILD.split(one)[0], _WILD.split(other)[0]
    return begin.startswith(beginning) or beginning.startswith(begin)


def _reachable(start: str, new: Delegation, others: Sequence[Delegation]) -> set[str]:
    """Everybody who may answer for `start` at some time when the new one holds, whatever the conditions."""
    found, frontier = set[str](), [start]
    while frontier:
        here = frontier.pop()
        for one in others:
            is_meant = one.delegator == here and not one.is_revoked and _at_once(one, new)
            if is_meant and one.delegate not in found:
                found.add(one.delegate)
                frontier.append(one.delegate)
    return found


def chains_to(voter: str, delegations: Iterable[Delegation], subject: Subject, now: int) -> Iterator[Chain]:
    """Every way in which this one answers for somebody, its own slot first, then the shortest.

    Two writes may have closed a ring that neither of them saw: nobody is in a chain twice.
    """
    usable = [one for one in delegations if one.holds(subject, now)]
    frontier: list[Chain] = [(voter,)]
    while frontier:
        following = []
        for chain in frontier:
            yield chain
            if len(chain) > DEEPEST:
                continue
            for one in usable:
                is_first_link = len(chain) == 1  # whoever stands before it must have said that it may be passed on
                if one.delegate == chain[0] and one.delegator not in chain and (is_first_link or one.cascades):
                    following.append((one.delegator, *chain))
        frontier = following


# What a policy demands: rules that must all be met, each by so many people out of some.


MAX_POLICY_MS = 30 * 86_400_000
MOST_STEPS = 9
_MOST_RULES, _MOST_NEEDED = 20, 20


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long approvals stay open: where the rulebook does not say, and at the most."""

    usual_ms: int = 86_400_000
    longest_ms: int = MAX_POLICY_MS


class PolicyRule(Struct, frozen=True, kw_only=True):
    """So many different people out of these users, and of those who have one of these roles."""

    needed: int
    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    name: str = ""

    def admits(self, account: Account) -> bool:
        return account.id in self.users or not self.roles.isdisjoint(account.roles)


class PolicyStep(Struct, frozen=True, kw_only=True):
    """An escalation: after this time without a decision, others may answer too."""

    after_ms: int
    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()


class Recheck(StrEnum):
    """What must still hold of those who approved when the task starts."""

    ACTIVE = auto()
    ROLES = auto()  # and they must still be ones the rules admit


class Policy(Struct, frozen=True, kw_only=True):
    """Copied into each gate, so that later changes of it concern later gates."""

    id: str
    version: int = 1
    rules: tuple[PolicyRule, ...]
    deny_threshold: int = 1
    veto_roles: frozenset[str] = frozenset()
    expires_after_ms: int = 86_400_000  # without a decision by then: not approved
    valid_for_ms: int = 86_400_000  # an approval that was not used by then is none any more
    steps: tuple[PolicyStep, ...] = ()
    authors_may_vote: bool = False  # separation of duties is on unless an administrator says otherwise
    roles_travel: bool = False  # whether a delegate may answer for a role it does not have itself
    recheck: Recheck = Recheck.ACTIVE


def check_policy(policy: Policy) -> None:
    """Raise InvalidPolicy for what could never be met, or would be met by nobody at all."""
    if not policy.id or not policy.id.isprintable() or len(policy.id) > 100:
        raise InvalidPolicy("a policy needs a name of 1 to 100 printable characters")
    if not 1 <= len(policy.rules) <= _MOST_RULES:
        raise InvalidPolicy(f"a policy has 1 to {_MOST_RULES} rules, not {len(policy.rules)}; without any, all pass")
    for rule in policy.rules:
        _check_rule(rule)
    if policy.deny_threshold < 1:
        raise InvalidPolicy("deny_threshold must be at least 1: how many people must say no")
    for what in ("expires_after_ms", "valid_for_ms"):
        if not 0 < getattr(policy, what) <= MAX_POLICY_MS:
            raise InvalidPolicy(f"{what} must be more than 0 and at most 30 days")
    _check_steps(policy)


def _check_rule(rule: PolicyRule) -> None:
    if not 1 <= rule.needed <= _MOST_NEEDED:
        raise InvalidPolicy(f"a rule needs 1 to {_MOST_NEEDED} people, not {rule.needed}")
    if not rule.users and not rule.roles:
        raise InvalidPolicy("a rule must say out of whom: name users or roles")
    if not rule.roles and rule.needed > len(rule.users):
        raise InvalidPolicy(f"a rule that needs {rule.needed} out of {len(rule.users)} people can never be met")


def _check_steps(policy: Policy) -> None:
    if len(policy.steps) > MOST_STEPS:
        raise InvalidPolicy(f"a policy has at most {MOST_STEPS} escalation steps, not {len(policy.steps)}")
    moments = [step.after_ms for step in policy.steps]
    if moments != sorted(set(moments)) or not all(0 < moment < policy.expires_after_ms for moment in moments):
        raise InvalidPolicy("escalation steps come one after the other, and before the policy expires")
    if any(not step.users and not step.roles for step in policy.steps):
        raise InvalidPolicy("an escalation step must say who may answer from then on: name users or roles")


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
MAX_STEP_REQUESTS = 100  # in one task


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
