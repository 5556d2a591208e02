"""The rulebook: what the guard says, which policies are for whom, and how critical things are. Kept in versions."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ade.core.approvals.policies import Policy
from ade.core.approvals.risk import RiskLevel
from ade.core.guard_rules import GuardRule, Occasion
from ade.core.lifecycle import Status
from ade.core.patterns import folded, matches_any
from ade.core.records import SYSTEM, Task


class PolicyEntry(Struct, frozen=True, kw_only=True):
    """A policy and what it is for. All conditions that are given must hold; without any it must be named."""

    policy: Policy
    names: tuple[str, ...] = ()  # patterns
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    from_level: RiskLevel | None = None
    auto_approve: RiskLevel | None = None  # up to this level nobody needs to be asked
    high_risk_in_batch: bool = False  # whether one answer may approve many tasks of a high risk
    said: frozenset[str] = frozenset()  # which of recheck, valid_for and expires_after were chosen, not left as usual

    @property
    def is_general(self) -> bool:
        """Whether it is for some subjects without being named."""
        return bool(self.names or self.tags or self.resource_types or self.from_level is not None)


class Rulebook(Struct, frozen=True, kw_only=True):
    version: int = 0  # 0: nobody has applied one yet
    guard: tuple[GuardRule, ...] = ()
    policies: tuple[PolicyEntry, ...] = ()
    criticality: dict[str, int] = {}

    def guards(self, occasion: Occasion) -> bool:
        """Whether any rule is for this occasion; if not, nobody needs to put a case together."""
        return any(occasion in rule.at for rule in self.guard)


def criticalities_of(rulebook: Rulebook, resources: Sequence[str]) -> tuple[int, ...]:
    """How critical each of these is, 0 to 100: what the longest pattern that fits says, 0 where none does."""
    return tuple(_criticality(rulebook.criticality, resource) for resource in resources)


def _criticality(table: Mapping[str, int], resource: str) -> int:
    fitting = [(len(folded(pattern)), value) for pattern, value in table.items() if matches_any((pattern,), resource)]
    return max(fitting, default=(0, 0))[1]


def passes(task: Task, rulebook: Rulebook) -> bool:
    """Whether nobody has anything to say about this new task: by far the most frequent case."""
    if task.source == SYSTEM or task.status is Status.DRAFT:
        return True
    return task.review is None and not rulebook.guards(Occasion.ENQUEUE)
