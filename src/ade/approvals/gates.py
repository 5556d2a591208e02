"""Evaluation of a gate: what its votes mean now, and who can still vote.

No counts are stored. `evaluate` runs whenever a vote, an edit, a delegation, a role, or the clock might have changed
the result, inside the write that changes it.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from ade.accounts.model import Account, Directory
from ade.approvals.model import (
    NO_AUTHOR,
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

# One person fills one slot, so whether all rules are met is a bipartite matching and not a count per rule.


_DENIALS = frozenset({Decision.REJECT, Decision.RESPOND})
Slot = tuple[int, int]  # the number of a rule, and of the slot in it


def slots_of(needed: Sequence[int]) -> list[Slot]:
    """Return one slot for each approval that each rule needs."""
    return [(rule, place) for rule, count in enumerate(needed) for place in range(count)]


def fill(needed: Sequence[int], able: Mapping[str, frozenset[int]]) -> dict[Slot, str]:
    """Fill as many slots as possible, each with a different person. `able`: person -> the rules they can vote for.

    People are taken in the given order, and a person with a slot keeps one, so more people never fill fewer slots.
    """
    filled: dict[Slot, str] = {}
    places = slots_of(needed)
    for person in able:
        _seat(person, places, able, filled, set())
    return filled


def _seat(
    person: str, places: Sequence[Slot], able: Mapping[str, frozenset[int]], filled: dict[Slot, str], tried: set[Slot]
) -> bool:
    """Find a slot for the person, moving others to other slots of theirs if needed."""
    for slot in places:
        if slot[0] not in able[person] or slot in tried:
            continue
        tried.add(slot)
        if slot not in filled or _seat(filled[slot], places, able, filled, tried):
            filled[slot] = person
            return True
    return False


def unmet_rules(needed: Sequence[int], able: Mapping[str, frozenset[int]]) -> frozenset[int]:
    """Return the rules for which one more person would fill one more slot: those with too few people, and those whose
    people could then vote for these instead."""
    filled = fill(needed, able)
    unmet = {slot[0] for slot in slots_of(needed) if slot not in filled}
    while more := {slot[0] for slot, person in filled.items() if able[person] & unmet} - unmet:
        unmet |= more
    return frozenset(unmet)


class GateStanding(Struct, frozen=True, kw_only=True):
    """The result of evaluating a gate. Missing slots are described by the names of their rules."""

    state: GateState
    approved_by: tuple[str, ...] = ()  # people whose approvals fill a slot
    rejected_by: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    may_vote: tuple[str, ...] = ()  # accounts that could still fill a slot
    unmet: frozenset[int] = frozenset()  # if it is blocked, the rules for which there are too few people


def evaluate(gate: Gate, directory: Directory, delegations: Sequence[Delegation], now: int) -> GateStanding:
    """Evaluate the votes at a gate. Pure: the same votes, accounts, and time always give the same result."""
    if gate.state not in UNDECIDED:
        return GateStanding(state=gate.state)
    eligibility = _Eligibility(gate, directory, delegations)
    newest = eligibility.counted(gate.votes)
    rejecting = [who for who, vote in newest.items() if vote.decision is Decision.REJECT]
    denying = [who for who, vote in newest.items() if vote.decision in _DENIALS]
    asking = [who for who, vote in newest.items() if vote.decision is Decision.REQUEST_CHANGES]
    filled, able = eligibility.filled(newest), eligibility.able(now)
    state = _state(gate, eligibility, newest, denying, asking, filled, able, now)
    is_blocked = state is GateState.BLOCKED
    return GateStanding(
        state=state,
        approved_by=tuple(sorted(set(filled.values()))),
        rejected_by=tuple(sorted(rejecting)),
        missing=(*_missing_authors(gate, directory), *_missing(gate.policy.rules, filled)),
        may_vote=tuple(sorted(account for account, who in eligibility.accounts(able) if who not in newest)),
        unmet=unmet_rules([rule.needed for rule in gate.policy.rules], able) if is_blocked else frozenset(),
    )


def _state(
    gate: Gate,
    eligibility: "_Eligibility",
    newest: Mapping[str, Vote],
    denying: Sequence[str],
    asking: Sequence[str],
    filled: Mapping[Slot, str],
    able: Mapping[str, frozenset[int]],
    now: int,
) -> GateState:
    """Denials take precedence over approvals, late votes do not count, and a gate that cannot be met never passes.

    Responses deny as rejections do. The run continues only if no one who denies wants it to end.
    """
    vetoed = any(eligibility.has_veto(newest[who]) for who in denying)
    if vetoed or len(denying) >= gate.policy.deny_threshold:
        goes_on = gate.is_step and all(newest[who].is_response for who in denying)
        return GateState.RESPONDED if goes_on else GateState.REJECTED
    if asking:
        return GateState.EXPIRED if now >= gate.expires_at else GateState.CHANGES_REQUESTED
    needed = [rule.needed for rule in gate.policy.rules]
    is_verified = not eligibility.unverified
    if len(filled) == sum(needed) and is_verified:
        return GateState.APPROVED
    if now >= gate.expires_at:
        return GateState.EXPIRED
    can_be_met = is_verified and len(fill(needed, able)) == sum(needed)
    return GateState.OPEN if can_be_met else GateState.BLOCKED


def still_stands(gate: Gate, directory: Directory, now: int) -> bool:
    """Whether an approval is still valid when the task starts: it is not too old, and its voters are active and, if the
    policy rechecks roles, still have them."""
    if gate.state is not GateState.APPROVED or gate.decided_at is None:
        return False
    if now >= gate.decided_at + gate.policy.valid_for_ms:
        return False
    eligibility = _Eligibility(gate, directory, (), keeps_roles=gate.policy.recheck is not Recheck.ROLES)
    return len(eligibility.filled(eligibility.counted(gate.votes))) == sum(rule.needed for rule in gate.policy.rules)


def admitting_chain(
    gate: Gate,
    voter_id: str,
    on_behalf_of: str | None,
    directory: Directory,
    delegations: Sequence[Delegation],
    now: int,
) -> Chain | None:
    """Return the delegation chain under which a vote would count: empty for the voter's own slot, which is preferred;
    None if it would not count."""
    voter, eligibility = directory.get(voter_id), _Eligibility(gate, directory, delegations)
    if voter is None:
        return None
    for chain in eligibility.chains(voter, now):
        is_for_another = directory.who(chain[0]) != voter.who
        if on_behalf_of not in (None, chain[0]) or (is_for_another and has_voted(gate, chain[0], directory)):
            continue
        if eligibility.admitting(voter, chain, now):
            return chain if len(chain) > 1 else ()
    return None


def has_voted(gate: Gate, account_id: str, directory: Directory) -> bool:
    """Whether the person behind the account has voted, in any name, so that no delegate can."""
    who = directory.who(account_id)
    return any(who in names for names, _ in _Eligibility(gate, directory, ()).valid(gate.votes))


def seats(gate: Gate, directory: Directory) -> tuple[tuple[str, ...], ...]:
    """Return for each rule the people whose approvals fill its slots. At a decided gate, voters keep the roles they had
    when they voted."""
    eligibility = _Eligibility(gate, directory, (), keeps_roles=gate.state not in UNDECIDED)
    filled = eligibility.filled(eligibility.counted(gate.votes))
    return tuple(
        tuple(filled[slot] for slot in sorted(filled) if slot[0] == number) for number in range(len(gate.policy.rules))
    )


def uncounted(gate: Gate, directory: Directory) -> dict[int, str]:
    """Return why votes do not count, by their `seq`; votes that count are left out."""
    eligibility = _Eligibility(gate, directory, (), keeps_roles=gate.state not in UNDECIDED)
    newest = {vote.seq for vote in eligibility.counted(gate.votes).values()}
    return {
        vote.seq: eligibility.why_not(vote)
        or ("another vote replaced it" if vote.chain else "the same person voted again later")
        for vote in gate.votes
        if vote.seq not in newest
    }


def rules_in_force(gate: Gate, now: int) -> tuple[PolicyRule, ...]:
    """Return the policy's rules; every escalation step that is due adds reviewers to those of its own policy, and
    removes none."""
    due = [
        step
        for number, step in enumerate(gate.policy.steps)
        if now >= gate.opened_at + step.after_ms or number in gate.early
    ]
    return tuple(_after(rule, due) for rule in gate.policy.rules) if due else gate.policy.rules


def _after(rule: PolicyRule, steps: Sequence[PolicyStep]) -> PolicyRule:
    """Return the rule after these steps. One that stands for several policies gets those whom each of them adds."""
    added = [[step for step in steps if step.policy == number] for number in rule.escalating]
    if not added or not all(added):
        return rule
    users = [frozenset[str]().union(*(step.users for step in own)) for own in added]
    roles = [frozenset[str]().union(*(step.roles for step in own)) for own in added]
    return structs.replace(
        rule, users=rule.users | frozenset.intersection(*users), roles=rule.roles | frozenset.intersection(*roles)
    )


def unverified_writers(gate: Gate, directory: Directory) -> tuple[str, ...]:
    """Return those who wrote the task and are still not accounts. They could approve it under another name, so the
    gate is blocked."""
    return tuple(name for name in gate.unverified if directory.get(name) is None)


def _newest_of_each(votes: Sequence[tuple[frozenset[str], Vote]]) -> list[tuple[frozenset[str], Vote]]:
    """Return the newest vote for each person. Accounts that belonged to one person when the vote was given still count
    as one, whatever was changed since: votes with a name in common are those of one person."""
    newest: list[tuple[frozenset[str], Vote]] = []
    for names, vote in sorted(votes, key=lambda each: each[1].seq):
        same = [each for each in newest if each[0] & names]
        newest = [each for each in newest if each not in same]
        newest.append((names.union(*(known for known, _ in same)), vote))
    return newest


class _Eligibility:
    """Who can vote at a gate, and for which of its rules."""

    def __init__(
        self, gate: Gate, directory: Directory, delegations: Sequence[Delegation], *, keeps_roles: bool = False
    ) -> None:
        self._gate = gate
        self._directory = directory
        self._delegations = delegations
        self._keeps_roles = keeps_roles
        self.unverified = unverified_writers(gate, directory)
        self._conflicts = {*gate.conflicts, *(directory.who(account) for account in gate.conflicts)}

    def counted(self, votes: Sequence[Vote]) -> dict[str, Vote]:
        """Return the newest vote of each person, if it counts. A vote that no longer counts does not revive an older
        one. A person who has voted, in any name, is not represented by others: approvals on behalf of that person do
        not count. Of several approvals on behalf of one person, the newest counts."""
        valid = self.valid(votes)
        approvals = [
            (self._represented(vote), vote)
            for names, vote in valid
            if vote.decision is Decision.APPROVE and self._is_for_another(names, vote)
        ]
        voters = frozenset[str]().union(*(names for names, _ in valid))
        kept = {vote.seq for represented, vote in _newest_of_each(approvals) if represented.isdisjoint(voters)}
        dropped = {vote.seq for _, vote in approvals} - kept
        return {self._directory.who(vote.voter): vote for _, vote in valid if vote.seq not in dropped}

    def valid(self, votes: Sequence[Vote]) -> list[tuple[frozenset[str], Vote]]:
        """Return the newest vote of each person with the names of that person, if it counts by itself."""
        known = [
            (frozenset({self._directory.who(vote.voter), vote.person or vote.voter}), vote)
            for vote in votes
            if not vote.is_dismissed and vote.digest == self._gate.digest
        ]
        return [(names, vote) for names, vote in _newest_of_each(known) if not self.why_not(vote)]

    def _represented(self, vote: Vote) -> frozenset[str]:
        """Return the names of the person whose slot it is."""
        owner = vote.chain[0]
        return frozenset({self._directory.who(owner), vote.owner_person or owner})

    def _is_for_another(self, names: frozenset[str], vote: Vote) -> bool:
        return bool(vote.chain) and names.isdisjoint(self._represented(vote))

    def filled(self, counted: Mapping[str, Vote]) -> dict[Slot, str]:
        """Return the slots that the approvals among these votes fill, and the person in each."""
        approving = {who: self.rules_for(vote) for who, vote in counted.items() if vote.decision is Decision.APPROVE}
        return fill([rule.needed for rule in self._gate.policy.rules], approving)

    def rules_for(self, vote: Vote) -> frozenset[int]:
        """Return the rules that this vote can help to meet, as they were when it was given."""
        voter = self._directory.get(vote.voter)
        if voter is None:
            return frozenset()
        if self._keeps_roles:
            voter = Account(id=voter.id, person=voter.person, roles=vote.roles, is_active=voter.is_active)
        return self.admitting(voter, vote.chain or (vote.voter,), vote.at)

    def able(self, now: int) -> dict[str, frozenset[int]]:
        """Return every person who could vote, and for which rules."""
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
        """Return why a vote does not count, whatever the other votes are; empty if it counts."""
        voter = self._directory.get(vote.voter)
        if vote.is_dismissed:
            return "it was dismissed"
        if vote.digest != self._gate.digest:
            return "it was for another digest"
        if vote.at >= self._gate.expires_at:
            return "it came too late"
        if voter is None or not voter.is_active or not voter.is_human:
            return f"{vote.voter} is not an active person"
        members = (voter.id, vote.person or voter.id, *vote.chain, vote.owner_person or voter.id)
        if any(self._is_conflicted(member) for member in members):
            return f"{vote.voter}, or the person represented, is involved in the task"
        has_say = self.rules_for(vote) or (vote.decision in _DENIALS and self.has_veto(vote))
        return "" if has_say else f"no rule includes {vote.voter} any longer"

    def _may(self, account: Account) -> bool:
        return account.is_active and account.is_human and not self._is_conflicted(account.id)

    def _is_conflicted(self, account_id: str) -> bool:
        names = {account_id, self._directory.who(account_id)}
        return not self._gate.policy.authors_may_vote and not names.isdisjoint(self._conflicts)

    def chains(self, account: Account, now: int) -> list[Chain]:
        """Return the account's own slot, and the slots of its delegators if it can vote on behalf of others."""
        chains = chains_to(account.id, self._delegations, self._gate.subject, now)
        usable = [chain for chain in chains if not any(self._is_conflicted(member) for member in chain)]
        return usable if account.is_approver else [chain for chain in usable if len(chain) == 1]

    def admitting(self, voter: Account, chain: Chain, at: int) -> frozenset[int]:
        """Return the rules that admit the slot owner. A role must also be held by the voter, unless the policy lets
        roles travel."""
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


def _missing_authors(gate: Gate, directory: Directory) -> tuple[str, ...]:
    unknown = unverified_writers(gate, directory)
    return tuple("an author" if name == NO_AUTHOR else f"an account {name}, which wrote it" for name in unknown)


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


# Who could meet a policy, before a gate is opened.


class RuleCandidates(Struct, frozen=True):
    """A policy rule, and the accounts that can vote for it."""

    rule: PolicyRule
    accounts: tuple[str, ...]
    later: tuple[str, ...]  # accounts that an escalation adds


class Candidates(Struct, frozen=True):
    """The candidates of all rules, and how many people are missing in total: one person fills one slot."""

    rules: tuple[RuleCandidates, ...]
    missing: int


def candidates(policy: Policy, directory: Directory) -> Candidates:
    """Find candidates among the current accounts. The gate of a task later leaves out accounts with an author
    conflict."""
    able = [account for account in directory.everybody() if account.is_active and account.is_human]
    found = []
    for rule in policy.rules:
        now = tuple(sorted(account.id for account in able if rule.admits(account)))
        later = {account.id for account in able if _after(rule, policy.steps).admits(account)} - {*now}
        found.append(RuleCandidates(rule, now, tuple(sorted(later))))
    return Candidates(tuple(found), sum(rule.needed for rule in policy.rules) - _seated(policy, able))


def _seated(policy: Policy, able: Sequence[Account]) -> int:
    answers: dict[str, frozenset[int]] = {}
    for account in able:
        rules = frozenset(number for number, rule in enumerate(policy.rules) if rule.admits(account))
        answers[account.who] = answers.get(account.who, frozenset()) | rules
    return len(fill([rule.needed for rule in policy.rules], answers))
