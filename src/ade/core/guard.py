"""The guard: whether something may be done, may not, or needs people first. Whatever cannot be judged may not."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from ade.core.guard_rules import Case, GuardRule, Occasion, Verdict, holds


class Ruling(Struct, frozen=True, kw_only=True):
    """`rule` is the number of the rule that was the first to hold, from 1; None where none did."""

    verdict: Verdict
    rule: int | None = None
    policy: str | None = None
    reason: str = ""


class Guarded(Protocol):
    """Whatever has guard rules, as a rulebook does."""

    @property
    def guard(self) -> Sequence[GuardRule]: ...


ALLOWED = Ruling(verdict=Verdict.ALLOW)


def rule_on(rulebook: Guarded, case: Case, occasion: Occasion) -> Ruling:
    """The first rule that holds decides; where none does, all is allowed. Never raises."""
    number = 0
    try:
        for number, rule in enumerate(rulebook.guard, 1):
            if occasion in rule.at and holds(rule, case):
                return Ruling(verdict=rule.do, rule=number, policy=rule.policy, reason=rule.reason)
    except Exception as error:  # whatever it is, an attacker may have made it happen
        reason = f"guard rule {number} could not be judged ({type(error).__name__}), so this is denied"
        return Ruling(verdict=Verdict.DENY, rule=number or None, reason=reason)
    return ALLOWED


__all__ = ["ALLOWED", "Case", "GuardRule", "Guarded", "Occasion", "Ruling", "Verdict", "rule_on"]
