"""What a policy demands: rules that must all be met, each by so many people out of some."""

from enum import StrEnum, auto

from msgspec import Struct

from ade.core.approvals.people import Account
from ade.core.approvals.refusals import InvalidPolicy

LONGEST_MS = 30 * 86_400_000
MOST_STEPS = 9
_MOST_RULES, _MOST_NEEDED = 20, 20


class Rule(Struct, frozen=True, kw_only=True):
    """So many different people out of these users, and of those who have one of these roles."""

    needed: int
    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    name: str = ""

    def admits(self, account: Account) -> bool:
        return account.id in self.users or not self.roles.isdisjoint(account.roles)


class Step(Struct, frozen=True, kw_only=True):
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
    rules: tuple[Rule, ...]
    deny_threshold: int = 1
    veto_roles: frozenset[str] = frozenset()
    expires_after_ms: int = 86_400_000  # without a decision by then: not approved
    valid_for_ms: int = 86_400_000  # an approval that was not used by then is none any more
    steps: tuple[Step, ...] = ()
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
        if not 0 < getattr(policy, what) <= LONGEST_MS:
            raise InvalidPolicy(f"{what} must be more than 0 and at most 30 days")
    _check_steps(policy)


def _check_rule(rule: Rule) -> None:
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
