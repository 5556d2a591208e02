"""Records of approvals: delegations, policies, gates, votes, and the review that is stored in each task."""

from collections.abc import Iterable, Iterator
from enum import StrEnum, auto
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Raw, Struct, structs

from ade.accounts.model import Account
from ade.approvals.errors import InvalidPolicy
from ade.approvals.risk import RiskLevel

# Delegations: limited in time, optionally under conditions, and never in a cycle.


DEEPEST = 3
MAX_DELEGATION_MS = 90 * 86_400_000

DELEGATION_CREATED, DELEGATION_REVOKED = "delegation.created", "delegation.revoked"
CYCLE_FOUND = "delegation.ring_found"

Chain = tuple[str, ...]  # from the slot owner to the voter, both included


class Subject(Struct, frozen=True, kw_only=True):
    """The part of a task that the conditions of delegations and policies look at."""

    name: str
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    level: RiskLevel = RiskLevel.LOW
    task_id: str = ""
    # Those that the author of the task did not choose. None: not recorded, so that all of them count.
    trusted_tags: frozenset[str] | None = None
    trusted_resource_types: frozenset[str] | None = None

    @property
    def trusted(self) -> "Subject":
        """The subject without the tags and resource types that its author chose."""
        return Subject(
            name=self.name,
            tags=self.tags if self.trusted_tags is None else self.trusted_tags,
            resource_types=(
                self.resource_types if self.trusted_resource_types is None else self.trusted_resource_types
            ),
            level=self.level,
            task_id=self.task_id,
        )


class Delegation(Struct, frozen=True, kw_only=True):
    """Lets `delegate` vote on behalf of `delegator`. Empty conditions match everything."""

    id: str
    delegator: str
    delegate: str
    starts_at: int
    ends_at: int
    cascades: bool = False  # whether the delegate can delegate further
    is_revoked: bool = False
    names: frozenset[str] = frozenset()  # glob patterns with `*`, `?`, and `[...]`
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    from_level: RiskLevel = RiskLevel.LOW
    to_level: RiskLevel = RiskLevel.CRITICAL
    task_id: str = ""  # only for this task

    def holds(self, subject: Subject, now: int) -> bool:
        """Whether it applies to this subject now. Evaluated at each vote, with the store's clock.

        Tags and resource types that the author of the task chose do not count: they would choose who may vote.
        """
        return (
            not self.is_revoked
            and self.starts_at <= now < self.ends_at
            and (not self.names or any(name_fits(subject.name, pattern) for pattern in self.names))
            and (not self.tags or not self.tags.isdisjoint(subject.trusted.tags))
            and (not self.resource_types or not self.resource_types.isdisjoint(subject.trusted.resource_types))
            and self.from_level.rank <= subject.level.rank <= self.to_level.rank
            and self.task_id in ("", subject.task_id)
        )


def name_fits(name: str, pattern: str) -> bool:
    """Whether a task name matches a glob pattern, or is the same text."""
    return name == pattern or fnmatchcase(name, pattern)


def chains_to(voter: str, delegations: Iterable[Delegation], subject: Subject, now: int) -> Iterator[Chain]:
    """Yield every chain under which this account can vote: its own slot first, then the shortest.

    Two concurrent writes can close a cycle that neither of them saw, so no account appears twice in a chain.
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
                is_first_link = len(chain) == 1  # every further link must allow delegating further
                if one.delegate == chain[0] and one.delegator not in chain and (is_first_link or one.cascades):
                    following.append((one.delegator, *chain))
        frontier = following


# Policies: rules that must all be met, each by a number of eligible reviewers.


MAX_POLICY_MS = 30 * 86_400_000
MOST_STEPS = 9
_MOST_RULES, _MOST_NEEDED = 20, 20


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long approvals stay open: the default where the rulebook sets none, and the maximum."""

    usual_ms: int = 86_400_000
    longest_ms: int = MAX_POLICY_MS


NO_POLICY = -1


class PolicyRule(Struct, frozen=True, kw_only=True):
    """A number of different people among these users and the holders of these roles."""

    needed: int
    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    name: str = ""
    # The numbers of the combined policies that it stands for: it gets those whom the escalation steps of each of them
    # add. Empty: it is of the first policy, or of the only one. NO_POLICY: no step adds to it.
    policies: tuple[int, ...] = ()

    @property
    def escalating(self) -> tuple[int, ...]:
        """The numbers of the policies whose steps add to it."""
        return self.policies or (0,)

    def admits(self, account: Account) -> bool:
        """Whether this account is among the users or has one of the roles."""
        return account.id in self.users or not self.roles.isdisjoint(account.roles)


class PolicyStep(Struct, frozen=True, kw_only=True):
    """An escalation: after this time without a decision, these accounts can vote too, for the rules of its policy."""

    after_ms: int
    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    policy: int = 0  # its number among the combined ones


class Recheck(StrEnum):
    """What must still hold for the voters when the task starts."""

    ACTIVE = auto()
    ROLES = auto()  # and the rules must still admit them


class Policy(Struct, frozen=True, kw_only=True):
    """What an approval requires. Copied into each gate, so that later changes affect only later gates."""

    id: str
    version: int = 1
    rules: tuple[PolicyRule, ...]
    deny_threshold: int = 1
    veto_roles: frozenset[str] = frozenset()
    expires_after_ms: int = 86_400_000  # without a decision by then, not approved
    valid_for_ms: int = 86_400_000  # an approval that was not used by then has expired
    steps: tuple[PolicyStep, ...] = ()
    authors_may_vote: bool = False  # separation of duties, unless an admin turns it off
    roles_travel: bool = False  # whether a delegate can vote for a role it does not have itself
    recheck: Recheck = Recheck.ACTIVE


def check_policy(policy: Policy) -> None:
    """Raise InvalidPolicy for a policy that could never be met, or that needs no approval at all."""
    if not policy.id or not policy.id.isprintable() or len(policy.id) > 100:
        raise InvalidPolicy("a policy needs a name of 1 to 100 printable characters")
    if not 1 <= len(policy.rules) <= _MOST_RULES:
        raise InvalidPolicy(f"a policy has 1 to {_MOST_RULES} rules, not {len(policy.rules)}; without any, all pass")
    for rule in policy.rules:
        _check_rule(rule)
    if policy.deny_threshold < 1:
        raise InvalidPolicy("deny_threshold must be at least 1: how many people must reject")
    for what in ("expires_after_ms", "valid_for_ms"):
        if not 0 < getattr(policy, what) <= MAX_POLICY_MS:
            raise InvalidPolicy(f"{what} must be more than 0 and at most 30 days")
    _check_steps(policy)


def _check_rule(rule: PolicyRule) -> None:
    if not 1 <= rule.needed <= _MOST_NEEDED:
        raise InvalidPolicy(f"a rule needs 1 to {_MOST_NEEDED} people, not {rule.needed}")
    if not rule.users and not rule.roles:
        raise InvalidPolicy("a rule must name users or roles")
    if not rule.roles and rule.needed > len(rule.users):
        raise InvalidPolicy(f"a rule that needs {rule.needed} out of {len(rule.users)} people can never be met")


def _check_steps(policy: Policy) -> None:
    for number in {step.policy for step in policy.steps}:
        moments = [step.after_ms for step in policy.steps if step.policy == number]
        if len(moments) > MOST_STEPS:
            raise InvalidPolicy(f"a policy has at most {MOST_STEPS} escalation steps, not {len(moments)}")
        if moments != sorted(set(moments)) or not all(0 < moment < policy.expires_after_ms for moment in moments):
            raise InvalidPolicy("escalation steps come one after the other, and before the policy expires")
    if any(not step.users and not step.roles for step in policy.steps):
        raise InvalidPolicy("an escalation step must name users or roles that can answer from then on")


class GateState(StrEnum):
    """The state of a gate."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    OPEN = auto()
    BLOCKED = auto()  # the remaining accounts cannot meet the rules; it never passes automatically
    CHANGES_REQUESTED = auto()
    APPROVED = auto()
    REJECTED = auto()
    RESPONDED = auto()  # a step of a run was not approved; the run continues with what reviewers responded
    EXPIRED = auto()
    CANCELLED = auto()
    SUPERSEDED = auto()  # the task was edited: a new digest needs a new gate
    CONSUMED = auto()  # the task was started under it
    STALE = auto()  # the previewed resources have changed, or the approval is no longer valid
    REVOKED = auto()


NO_AUTHOR = "(no author)"  # not a possible name of an account
AFTER_THE_FACT = "after the fact"  # the step of a gate that was opened because another one was bypassed
UNDECIDED = frozenset({GateState.OPEN, GateState.BLOCKED, GateState.CHANGES_REQUESTED})
_IN_EFFECT = frozenset({GateState.APPROVED, GateState.RESPONDED})  # decided, and asked for by a restarted run


class Decision(StrEnum):
    """What a voter decides."""

    __hash__ = str.__hash__

    APPROVE = auto()
    REJECT = auto()
    REQUEST_CHANGES = auto()
    RESPOND = auto()  # to a step of a run: not approved, and the run continues with the response


class Vote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A vote on one digest; `seq` is the order in which the store recorded the votes."""

    seq: int
    voter: str
    decision: Decision
    digest: str
    at: int
    chain: Chain = ()  # if on behalf of another account: from the slot owner to the voter
    roles: frozenset[str] = frozenset()  # the voter's roles at that time, for the record
    owner_roles: frozenset[str] = frozenset()  # the slot owner's roles, if that is another account
    person: str = ""  # the person behind the voter, if one human has several accounts
    owner_person: str = ""  # the person behind the slot owner, if that is another account
    reason: str = ""
    via: str = ""  # how it was cast: cli, http, batch, ...
    password_set_by: str = ""  # another account that set the voter's password in the week before, and so knew it
    is_dismissed: bool = False
    text: str = ""  # of a response
    edited: str = ""  # of a response: the gate for the edited arguments
    go_on: bool = False  # of a rejection: the run continues without the step

    @property
    def is_response(self) -> bool:
        """Whether it denies a step without ending the run."""
        return self.decision is Decision.RESPOND or (self.decision is Decision.REJECT and self.go_on)


class FieldChange(Struct, frozen=True, kw_only=True):
    """How one field, such as `args.amount`, differs from what was signed at the gate before.

    Of long values, the part that differs is shown. `more` stands for further differences; `after` is their number.
    """

    path: str
    kind: Literal["added", "removed", "changed", "more"]
    before: Any = None
    after: Any = None


class Gate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to approve one digest under one policy, with its votes."""

    id: str
    task_id: str
    digest: str
    subject: Subject
    policy: Policy
    policies: tuple[str, ...] = ()  # the rulebook entries that were combined into the policy
    required: tuple[str, ...] = ()  # those of them that the rules require, whatever the author asked for
    code: str = ""  # the version of the task's code, as the newest registration reported it; empty if none did
    conflicts: frozenset[str]  # accounts: author, editors since the last digest, owners of the agent or token
    unverified: tuple[str, ...] = ()  # writers that were not accounts: blocked until they are; NO_AUTHOR without any
    opened_at: int
    state: GateState = GateState.OPEN
    decided_at: int | None = None
    votes: tuple[Vote, ...] = ()
    step: str = ""  # of a run that waits; empty for the task as a whole
    about: Any = None  # the subject of the step, as given by the run
    changes: tuple[FieldChange, ...] = ()  # since the gate before; only of the newest
    reason: str = ""  # why approval is demanded
    generation: int = 1  # of the task: a replay needs a new approval
    after_attempt: int = 0  # attempts of the task before this gate was opened
    after_throttles: int = 0  # and how often it was throttled, which counts no attempt
    fired: tuple[int, ...] = ()  # escalation steps that were announced
    early: tuple[int, ...] = ()  # escalation steps in force before their time, because no one else can vote
    in_batch: bool = True  # whether a batch vote can approve it
    is_automatic: bool = False  # approved by the policy itself, as `system`
    is_bypassed: bool = False  # bypassed by break-glass, which is never an approval
    end_reason: str = ""  # why it was cancelled

    @property
    def number(self) -> int:
        """Its number among the gates of its task, from 1."""
        return int(self.id.rpartition(".")[2])

    @property
    def expires_at(self) -> int:
        return self.opened_at + self.policy.expires_after_ms

    @property
    def valid_until(self) -> int | None:
        """When an approval expires that was not used; None without a decision."""
        return None if self.decided_at is None else self.decided_at + self.policy.valid_for_ms

    @property
    def is_undecided(self) -> bool:
        return self.state in UNDECIDED

    @property
    def is_over(self) -> bool:
        """Whether it no longer has any effect."""
        return not (self.is_undecided or self.is_bypassed or self.state in _IN_EFFECT)

    @property
    def is_step(self) -> bool:
        """Whether a run waits at it, so that there is something to respond to."""
        return self.step not in ("", AFTER_THE_FACT)

    @property
    def response(self) -> Vote | None:
        """The newest response, if the step was not approved and the run continues."""
        if self.state is not GateState.RESPONDED:
            return None
        return next((vote for vote in reversed(self.votes) if vote.is_response and not vote.is_dismissed), None)

    @property
    def still_decides(self) -> bool:
        """Whether it limits later gates: it judges a bypass after the fact, or a reviewer requested changes that the
        next version must contain. Both take a person, so they stay few."""
        has_requests = any(vote.decision is Decision.REQUEST_CHANGES and not vote.is_dismissed for vote in self.votes)
        return self.step == AFTER_THE_FACT or has_requests


class Comment(Struct, frozen=True, kw_only=True):
    """A comment on an approval."""

    by: str
    at: int
    text: str


class Bypass(Struct, frozen=True, kw_only=True):
    """A break-glass record: this digest runs without approval. It is never an approval."""

    by: str
    at: int
    reason: str
    digest: str


class StartMode(StrEnum):
    """How an approved task starts: immediately, or manually."""

    __hash__ = str.__hash__

    AT_ONCE = auto()
    BY_HAND = auto()


class PastRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of the last run of a task, stored when they are edited: a rollback undoes this run."""

    args: Raw
    digest: str | None = None
    generation: int = 1


class Review(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The approval data of one task. The newest gate is the last."""

    gates: tuple[Gate, ...] = ()
    policies: tuple[str, ...] = ()  # that the author asked for; they can only add to what the rules require
    required: tuple[str, ...] = ()  # that guard rules or a preview require; `usual` where they name none
    editors: tuple[str, ...] = ()  # accounts that edited it since the last gate was opened
    has_preview: bool = False
    preview_id: str | None = None  # the task that makes the preview
    errors: tuple[str, ...] = ()  # why it was sent back to its author
    start: StartMode = StartMode.AT_ONCE
    not_before: int | None = None  # the window in which it can start
    not_after: int | None = None
    comments: tuple[Comment, ...] = ()
    bypass: Bypass | None = None
    reason: str = ""  # why approval is demanded
    ran: PastRun | None = None  # the last run that began, if the arguments were edited since
    signed: dict[str, Any] | None = None  # what the last gate covered, until the next one lists the differences
    asked_people: bool = False  # for any gate, also one that is no longer in the record

    @property
    def was_for_people(self) -> bool:
        """Whether reviewers were asked at any time, or an automatic approval was revoked: it never passes automatically
        again, whatever the author changes."""
        return self.asked_people or any(_is_for_people(gate) for gate in self.gates)

    @property
    def is_governed(self) -> bool:
        """Whether the task must be approved before it runs, and again before it is replayed."""
        return bool(self.has_preview or self.policies or self.required or self.gates)

    @property
    def gate(self) -> Gate | None:
        """The newest gate."""
        return self.gates[-1] if self.gates else None

    def with_gate(self, gate: Gate, **fields: object) -> "Review":
        """Return a copy in which this gate replaces the one with the same ID, or is added as the newest."""
        known = [gate if each.id == gate.id else each for each in self.gates]
        if all(each.id != gate.id for each in self.gates):
            known = [*(structs.replace(each, changes=()) for each in known), gate]
        over = [each.id for each in known[:-1] if each.is_over and not each.still_decides]
        dropped = {*over[: max(0, len(known) - MOST_GATES)]}  # a restarted run needs those still in effect
        return structs.replace(
            self,
            gates=tuple(each for each in known if each.id not in dropped),
            asked_people=self.asked_people or any(map(_is_for_people, known)),
            **fields,
        )


def _is_for_people(gate: Gate) -> bool:
    return not gate.is_automatic or gate.state is GateState.REVOKED


MOST_GATES = 20  # kept in the record, not counting those still in effect; the log has all
MAX_STEP_REQUESTS = 100  # per task


def closed_review(review: Review, state: GateState, now: int, reason: str = "") -> Review:
    """Return the review with its newest gate in this state, if that gate was undecided or approved."""
    gate = review.gate
    if gate is None or not (gate.is_undecided or gate.state is GateState.APPROVED):
        return review
    return review.with_gate(structs.replace(gate, state=state, decided_at=gate.decided_at or now, end_reason=reason))


def with_editor(review: Review, actor: str | None) -> Review:
    """Return the review with one more account that cannot approve the task."""
    if actor is None or actor in review.editors:
        return review
    return structs.replace(review, editors=(*review.editors, actor))


def edited(review: Review | None, actor: str | None, now: int, ran: PastRun | None = None) -> Review | None:
    """Return the review after an edit: the gate is superseded, and the editor has an author conflict."""
    if review is None and actor is None and ran is None:
        return None
    before = closed_review(review or Review(), GateState.SUPERSEDED, now)
    return structs.replace(with_editor(before, actor), errors=(), ran=ran)
