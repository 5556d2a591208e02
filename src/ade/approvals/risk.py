"""How dangerous a task is, by facts that nobody who asks for it can choose."""

import math
from enum import StrEnum, auto

from msgspec import Struct

CRITICALITY, MAGNITUDE, BLAST_RADIUS, FAILURE_RATE = 0.4, 0.3, 0.2, 0.1
_MANY_CHANGES, _MANY_RESOURCES = 1_000, 16  # these and more count in full


class RiskLevel(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    LOW = auto()
    MEDIUM = auto()
    HIGH = auto()
    CRITICAL = auto()

    @property
    def rank(self) -> int:
        return list(RiskLevel).index(self)


class RiskFacts(Struct, frozen=True, kw_only=True):
    """What the store and the preview know."""

    criticalities: tuple[int, ...]  # of the resources, 0 to 100 each, from the table people keep
    changes: int  # what the preview would change
    resources: int
    everywhere: bool = False  # a resource names a whole kind, not one thing
    completed: int = 0  # runs of this name so far
    failed: int = 0


class Risk(Struct, frozen=True, kw_only=True):
    """The score, 0 to 100, and the parts it is made of, each 0 to 100 too."""

    score: float
    level: RiskLevel
    criticality: float
    magnitude: float
    blast_radius: float
    failure_rate: float


class Thresholds(Struct, frozen=True, kw_only=True):
    """From which score on a level begins."""

    medium: float = 25
    high: float = 50
    critical: float = 75


def assess(facts: RiskFacts, thresholds: Thresholds | None = None) -> Risk:
    criticality = float(max(facts.criticalities, default=0))
    magnitude = _share(facts.changes, _MANY_CHANGES)
    blast_radius = 100.0 if facts.everywhere else _share(facts.resources, _MANY_RESOURCES)
    # A name without a history counts as one that fails half of the time, and forgets that slowly.
    failure_rate = 100 * (facts.failed + 1) / (facts.completed + facts.failed + 2)
    score = (
        CRITICALITY * criticality + MAGNITUDE * magnitude + BLAST_RADIUS * blast_radius + FAILURE_RATE * failure_rate
    )
    score = round(min(max(score, 0.0), 100.0), 2)
    return Risk(
        score=score,
        level=level_of(score, thresholds or Thresholds()),
        criticality=criticality,
        magnitude=round(magnitude, 2),
        blast_radius=round(blast_radius, 2),
        failure_rate=round(failure_rate, 2),
    )


def level_of(score: float, thresholds: Thresholds) -> RiskLevel:
    if score >= thresholds.critical:
        return RiskLevel.CRITICAL
    if score >= thresholds.high:
        return RiskLevel.HIGH
    return RiskLevel.MEDIUM if score >= thresholds.medium else RiskLevel.LOW


def usual_quorum(score: float) -> int:
    """How many people must approve where no policy says otherwise."""
    return 3 if score >= 75 else 2 if score >= 50 else 1


def _share(count: int, many: int) -> float:
    """The first ones count most: 0 for none, 100 for many and more."""
    return min(100.0, 100 * math.log1p(max(count, 0)) / math.log1p(many))
