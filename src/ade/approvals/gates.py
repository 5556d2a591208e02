"""A gate: what must be decided by people before a task goes on, and what their votes mean so far.

Nothing is counted up and kept: `evaluate` is asked whenever a vote, an edit, a delegation, a role or the clock may have
changed something, inside the write that changes it.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ade.accounts.model import Account, Directory
from ade.approvals.model import (
    UNDECIDED,
    Chain,
    Decision,
    Delegation,
    Gate,
    GateState,
    Policy,
    PolicyRule,
    PolicyStep,
    Recheck,
    Vote,
    chains_to,
)

# One person fills one slot: whether all rules are met together is a matching, and not a count for each.


Slot = tuple[int, int]  # the number of a rule, and of the place in it


def slots_of(needed: Sequence[int]) -> list[Slot]:
    """So many places for each rule."""
    return [(rule, place) for rule, count in enumerate(needed) for place in range(count)]


def fill(needed: Sequence[int], able: Mapping[str, frozenset[int]]) -> dict[Slot, str]:
    """As many slots as can be filled at once, each by another person. `able`: person -> the rules it may answer for.

    The people are taken in the order given, and one who has a slot keeps one: more people never fill fewer.
    """
    filled: dict[Slot, str] = {}
    places = slots_of(needed)
    for person in able:
        _seat(person, places, able, filled, set())
    return filled


def _seat(
    person: str, places: Sequence[Slot], able: Mapping[str, frozenset[int]], filled: dict[Slot, str], tried: set[Slot]
) -> bool:
    """Find a slot for the person, moving others to slots of theirs where that makes room."""
    for slot in places:
        if slot[0] not in able[person] or slot in tried:
            continue
        tried.add(slot)
        if slot not in filled or _seat(filled[slot], places, able, filled, tried):
            filled[slot] = person
            return True
    return False


class GateStanding(Struct, frozen=True, kw_only=True):
    """What the votes mean now. Slots are told by the names of their rules."""

    state: GateState
    approved_by: tuple[str, ...] = ()  # people whose approvals fill a slot
    rejected_by: tuple[str, ...] = ()
    changes_asked_by: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    may_vote: tuple[str, ...] = ()  # accounts that could still fill a slot


def evaluate(gate: Gate, directory: Directory, delegations: Sequence[Delegation], now: int) -> GateStanding:
    """Pure: the same votes, people and time always mean the same."""
    if gate.state not in UNDECIDED:
        return GateStanding(state=gate.state)
    room = _Eligibility(gate, directory, delegations)
    newest = room.counted(gate.votes)
    rejecting = [who for who, vote in newest.items() if vote.decision is Decision.REJECT]
    asking = [who for who, vote in newest.items() if vote.decision is Decision.REQUEST_CHANGES]
    approving = {who: room.rules_for(vote) for who, vote in newest.items() if vote.decision is Decision.APPROVE}
    needed = [rule.needed for rule in gate.policy.rules]
    filled = fill(needed, approving)
    able = room.able(now)
    state = _state(gate, room, newest, rejecting, asking, len(filled) == sum(needed), able, now)
    return GateStanding(
        state=state,
        approved_by=tuple(sorted(set(filled.values()))),
        rejected_by=tuple(sorted(rejecting)),
        changes_asked_by=tuple(sorted(asking)),
        missing=_missing(gate.policy.rules, filled),
        may_vote=tuple(sorted(account for account, who in room.accounts(able) if who not in newest)),
    )


def _state(
    gate: Gate,
    room: "_Eligibility",
    newest: Mapping[str, Vote],
    rejecting: Sequence[str],
    asking: Sequence[str],
    is_met: bool,
    able: Mapping[str, frozenset[int]],
    now: int,
) -> GateState:
    """A no goes before a yes; nothing that is late counts; and what cannot be met never passes."""
    vetoed = any(room.has_veto(newest[who]) for who in rejecting)
    if vetoed or len(rejecting) >= gate.policy.deny_threshold:
        return GateState.REJECTED
    if asking:
        return GateState.EXPIRED if now >= gate.expires_at else GateState.CHANGES_REQUESTED
    if is_met:
        return GateState.APPROVED
    if now >= gate.expires_at:
        return GateState.EXPIRED
    needed = [rule.needed for rule in gate.policy.rules]
    can_be_met = len(fill(needed, able)) == sum(needed)
    return GateState.OPEN if can_be_met else GateState.BLOCKED


def still_stands(gate: Gate, directory: Directory, now: int) -> bool:
    """At the start: whether the approval is still good. Those who gave it must be there, and have their roles where the
    policy wants that; and it must not be older than it may be."""
    if gate.state is not GateState.APPROVED or gate.decided_at is None:
        return False
    if now >= gate.decided_at + gate.policy.valid_for_ms:
        return False
    room = _Eligibility(gate, directory, (), keeps_roles=gate.policy.recheck is not Recheck.ROLES)
    approving = {
        who: room.rules_for(vote) for who, vote in room.counted(gate.votes).items() if vote.decision is Decision.APPROVE
    }
    needed = [rule.needed for rule in gate.policy.rules]
    return len(fill(needed, approving)) == sum(needed)


def admitting_chain(
    gate: Gate,
    voter_id: str,
    on_behalf_of: str | None,
    directory: Directory,
    delegations: Sequence[Delegation],
    now: int,
) -> Chain | None:
    """For whom somebody's vote would count: empty for himself, which goes first; None if for nobody."""
    voter, room = directory.get(voter_id), _Eligibility(gate, directory, delegations)
    if voter is None:
        return None
    for chain in room.chains(voter, now):
        if on_behalf_of in (None, chain[0]) and room.admitting(voter, chain, now):
            return chain if len(chain) > 1 else ()
    return None


def seats(gate: Gate, directory: Directory) -> tuple[tuple[str, ...], ...]:
    """For each rule the people whose approvals fill its places, also of a gate that was decided: then those who gave
    them are taken as they were."""
    room = _Eligibility(gate, directory, (), keeps_roles=gate.state not in UNDECIDED)
    approving = {
        who: room.rules_for(vote) for who, vote in room.counted(gate.votes).items() if vote.decision is Decision.APPROVE
    }
    filled = fill([rule.needed for rule in gate.policy.rules], approving)
    return tuple(
        tuple(filled[slot] for slot in sorted(filled) if slot[0] == number) for number in range(len(gate.policy.rules))
    )


def uncounted(gate: Gate, directory: Directory) -> dict[int, str]:
    """Why votes do not count, by their seq; those that do are not in it."""
    room = _Eligibility(gate, directory, (), keeps_roles=gate.state not in UNDECIDED)
    newest = {vote.seq for vote in room.counted(gate.votes).values()}
    reasons = {vote.seq: room.why_not(vote) for vote in gate.votes if vote.seq not in newest}
    return {seq: reason or "there is a later one of the same person" for seq, reason in reasons.items()}


def rules_in_force(gate: Gate, now: int) -> tuple[PolicyRule, ...]:
    """Those of the policy; every escalation step that is due adds people to each of them, and takes nobody away."""
    due = [
        step
        for number, step in enumerate(gate.policy.steps)
        if now >= gate.opened_at + step.after_ms or number in gate.early
    ]
    users = frozenset[str]().union(*(step.users for step in due))
    roles = frozenset[str]().union(*(step.roles for step in due))
    return tuple(
        PolicyRule(needed=rule.needed, users=rule.users | users, roles=rule.roles | roles, name=rule.name)
        for rule in gate.policy.rules
    )


class _Eligibility:
    """Who may answer at this gate, and for which of its rules."""

    def __init__(
        self, gate: Gate, directory: Directory, delegations: Sequence[Delegation], *, keeps_roles: bool = False
    ) -> None:
        self._gate = gate
        self._directory = directory
        self._delegations = delegations
        self._keeps_roles = keeps_roles
        self._conflicts = {*gate.conflicts, *(directory.who(account) for account in gate.conflicts)}

    def counted(self, votes: Sequence[Vote]) -> dict[str, Vote]:
        """The newest vote of each person, if it counts. One that counts no more brings no older one back to life."""
        newest: list[tuple[set[str], Vote]] = []
        for vote in sorted(votes, key=lambda vote: vote.seq):
            if vote.is_dismissed or vote.digest != self._gate.digest:
                continue
            # Accounts that were one person's when they voted stay that, whatever was changed since.
            names = {self._directory.who(vote.voter), vote.person or vote.voter}
            for known, _ in (same := [each for each in newest if each[0] & names]):
                names |= known
            newest = [each for each in newest if each not in same] + [(names, vote)]
        return {self._directory.who(vote.voter): vote for _, vote in newest if not self.why_not(vote)}

    def rules_for(self, vote: Vote) -> frozenset[int]:
        """The rules this vote may help to meet, as they were when it was given."""
        voter = self._directory.get(vote.voter)
        if voter is None:
            return frozenset()
        if self._keeps_roles:
            voter = Account(id=voter.id, person=voter.person, roles=vote.roles, is_active=voter.is_active)
        return self.admitting(voter, vote.chain or (vote.voter,), vote.at)

    def able(self, now: int) -> dict[str, frozenset[int]]:
        """Every person that could answer, and for which rules."""
        found: dict[str, frozenset[int]] = {}
        for account in self._directory.everybody():
            if self._may(account):
                chains = self.chains(account, now)
                rules = frozenset[int]().union(*(self.admitting(account, chain, now) for chain in chains))
                if rules:
                    found[account.who] = found.get(account.who, frozenset()) | rules
        return found

    def accounts(self, able: Mapping[str, frozenset[int]]) -> list[tuple[str, str]]:
        return [
            (account.id, account.who)
            for account in self._directory.everybody()
            if account.who in able and self._may(account)
        ]

    def has_veto(self, vote: Vote) -> bool:
        voter = self._directory.get(vote.voter)
        return voter is not None and not self._gate.policy.veto_roles.isdisjoint(voter.roles)

    def why_not(self, vote: Vote) -> str:
        """Why a vote counts for nothing, whatever the others say; empty if it counts."""
        voter = self._directory.get(vote.voter)
        if vote.is_dismissed:
            return "it was dismissed"
        if vote.digest != self._gate.digest:
            return "it was about another digest"
        if vote.at >= self._gate.expires_at:
            return "it came too late"
        if voter is None or not voter.is_active or not voter.is_human:
            return f"{vote.voter} is no active person"
        if any(self._is_conflicted(member) for member in (voter.id, vote.person or voter.id, *vote.chain)):
            return f"{vote.voter}, or whoever it was given for, has a hand in the task"
        has_say = self.rules_for(vote) or (vote.decision is Decision.REJECT and self.has_veto(vote))
        return "" if has_say else f"no rule asks {vote.voter} any more"

    def _may(self, account: Account) -> bool:
        return account.is_active and account.is_human and not self._is_conflicted(account.id)

    def _is_conflicted(self, account_id: str) -> bool:
        names = {account_id, self._directory.who(account_id)}
        return not self._gate.policy.authors_may_vote and not names.isdisjoint(self._conflicts)

    def chains(self, account: Account, now: int) -> list[Chain]:
        """His own slot, and those of others if he may answer for others at all."""
        chains = chains_to(account.id, self._delegations, self._gate.subject, now)
        usable = [chain for chain in chains if not any(self._is_conflicted(member) for member in chain)]
        return usable if account.is_approver else [chain for chain in usable if len(chain) == 1]

    def admitting(self, voter: Account, chain: Chain, at: int) -> frozenset[int]:
        """By whose slot it is: a role must be the voter's own, unless the policy lets it travel."""
        owner = self._directory.get(chain[0])
        if owner is None or not owner.is_active:
            return frozenset()
        rules = rules_in_force(self._gate, at)
        is_own = owner.id == voter.id
        admitted = set()
        for number, rule in enumerate(rules):
            by_name = owner.id in rule.users
            by_role = not rule.roles.isdisjoint(voter.roles if is_own else owner.roles)
            travels = is_own or self._gate.policy.roles_travel or not rule.roles.isdisjoint(voter.roles)
            if by_name or (by_role and travels):
                admitted.add(number)
        return frozenset(admitted)


def _missing(rules: Sequence[PolicyRule], filled: Mapping[tuple[int, int], str]) -> tuple[str, ...]:
    lacking = []
    for number, rule in enumerate(rules):
        have = sum(slot[0] == number for slot in filled)
        if have < rule.needed:
            lacking.append(f"{rule.needed - have} of {rule.name or _described(rule)}")
    return tuple(lacking)


def _described(rule: PolicyRule) -> str:
    named = [*sorted(rule.users), *(f"role {role}" for role in sorted(rule.roles))]
    return ", ".join(named)


# Who could meet a policy, before anybody has asked them.


class RuleCandidates(Struct, frozen=True):
    """A rule of a policy, and the accounts that may answer for it."""

    rule: PolicyRule
    accounts: tuple[str, ...]
    later: tuple[str, ...]  # those an escalation adds


class Candidates(Struct, frozen=True):
    """All rules, and how many people all of them together lack: one person fills one place."""

    rules: tuple[RuleCandidates, ...]
    missing: int


def candidates(policy: Policy, directory: Directory) -> Candidates:
    """Of the people there are now; whoever has a hand in a task will be left out by its gate."""
    able = [account for account in directory.everybody() if account.is_active and account.is_human]
    found = []
    for rule in policy.rules:
        now = tuple(sorted(account.id for account in able if rule.admits(account)))
        later = {account.id for account in able if _is_added(policy.steps, account)} - {*now}
        found.append(RuleCandidates(rule, now, tuple(sorted(later))))
    return Candidates(tuple(found), sum(rule.needed for rule in policy.rules) - _seated(policy, able))


def _is_added(steps: Sequence[PolicyStep], account: Account) -> bool:
    return any(account.id in step.users or not step.roles.isdisjoint(account.roles) for step in steps)


def _seated(policy: Policy, able: Sequence[Account]) -> int:
    answers: dict[str, frozenset[int]] = {}
    for account in able:
        rules = frozenset(number for number, rule in enumerate(policy.rules) if rule.admits(account))
        answers[account.who] = answers.get(account.who, frozenset()) | rules
    return len(fill([rule.needed for rule in policy.rules], answers))
