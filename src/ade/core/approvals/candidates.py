"""Who could meet a policy, before anybody has asked them."""

from collections.abc import Sequence

from msgspec import Struct

from ade.core.approvals.people import Account, Directory
from ade.core.approvals.policies import Policy, Rule, Step
from ade.core.approvals.slots import fill


class RuleCandidates(Struct, frozen=True):
    """A rule of a policy, and the accounts that may answer for it."""

    rule: Rule
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


def _is_added(steps: Sequence[Step], account: Account) -> bool:
    return any(account.id in step.users or not step.roles.isdisjoint(account.roles) for step in steps)


def _seated(policy: Policy, able: Sequence[Account]) -> int:
    answers: dict[str, frozenset[int]] = {}
    for account in able:
        rules = frozenset(number for number, rule in enumerate(policy.rules) if rule.admits(account))
        answers[account.who] = answers.get(account.who, frozenset()) | rules
    return len(fill([rule.needed for rule in policy.rules], answers))
