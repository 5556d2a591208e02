"""Risk assessment: a score and a level, from facts that the author of a task cannot choose."""

import math
from enum import StrEnum, auto

from msgspec import Struct

CRITICALITY, MAGNITUDE, BLAST_RADIUS, FAILURE_RATE = 0.4, 0.3, 0.2, 0.1
MOST_LISTED = 50  # resources in the record of a risk
_MANY_CHANGES, _MANY_RESOURCES = 1_000, 16  # these and more count as 100


class RiskLevel(StrEnum):
    """The risk level of a task, in ascending order."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    LOW = auto()
    MEDIUM = auto()
    HIGH = auto()
    CRITICAL = auto()

    @property
    def rank(self) -> int:
        return list(RiskLevel).index(self)


class ResourceSource(StrEnum):
    """Who or what says that a task changes a resource."""

    __hash__ = str.__hash__

    AUTHOR = auto()  # declared with the task, or locked by it
    DEFINITION = auto()
    PREVIEW = auto()
    ARGUMENTS = auto()  # found by a rule of the rulebook


class RiskResource(Struct, frozen=True, kw_only=True):
    """A resource behind the factors of a risk."""

    name: str
    sources: tuple[ResourceSource, ...]
    criticality: int  # from the rulebook
    recent_tasks: int = 0  # other governed tasks of the same author that changed it within the window


class RiskFacts(Struct, frozen=True, kw_only=True):
    """The facts that the store, the definition, the arguments, and the preview provide."""

    criticalities: tuple[int, ...]  # of the resources, 0 to 100 each, from the rulebook
    changes: int  # number of changes in the preview
    resources: int
    everywhere: bool = False  # a resource names a whole type, not one resource
    completed: int = 0  # runs of this name so far
    failed: int = 0
    recent_tasks: int = 0  # other tasks of the same author on one of these resources, within the window
    recent_changes: int = 0  # in the previews of those
    unknown: RiskLevel | float | None = None  # the least level or score, if nothing says what it changes


class Risk(Struct, frozen=True, kw_only=True):
    """The score, 0 to 100, its factors, each 0 to 100, and the resources behind them, the most critical first."""

    score: float
    level: RiskLevel
    criticality: float
    magnitude: float
    blast_radius: float
    failure_rate: float
    resources: tuple[RiskResource, ...] = ()  # MOST_LISTED at most
    recent_tasks: int = 0  # other tasks of the same author on one of the resources, within the window
    is_unknown: bool = False  # neither definition, preview, nor arguments say what it changes


class Thresholds(Struct, frozen=True, kw_only=True):
    """The lowest score of each level."""

    medium: float = 25
    high: float = 50
    critical: float = 75


def assess(facts: RiskFacts, thresholds: Thresholds | None = None) -> Risk:
    """Return the weighted risk of these facts. Small tasks of one author on one resource add up."""
    thresholds = thresholds or Thresholds()
    least = least_score(facts.unknown, thresholds)
    criticality = float(max(facts.criticalities, default=0))
    if facts.unknown is not None:
        criticality = max(criticality, 100.0 if facts.unknown is RiskLevel.CRITICAL else least)
    magnitude = _share(facts.changes + facts.recent_changes, _MANY_CHANGES)
    blast_radius = 100.0 if facts.everywhere else _share(facts.resources + facts.recent_tasks, _MANY_RESOURCES)
    # Laplace smoothing: a name without history has a failure rate of 50%, which fades slowly.
    failure_rate = 100 * (facts.failed + 1) / (facts.completed + facts.failed + 2)
    score = (
        CRITICALITY * criticality + MAGNITUDE * magnitude + BLAST_RADIUS * blast_radius + FAILURE_RATE * failure_rate
    )
    score = round(min(max(score, least, 0.0), 100.0), 2)
    return Risk(
        score=score,
        level=level_of(score, thresholds),
        criticality=criticality,
        magnitude=round(magnitude, 2),
        blast_radius=round(blast_radius, 2),
        failure_rate=round(failure_rate, 2),
        recent_tasks=facts.recent_tasks,
        is_unknown=facts.unknown is not None,
    )


def least_score(unknown: RiskLevel | float | None, thresholds: Thresholds) -> float:
    """Return the least score of a task whose resources are unknown: a number, or where a level begins."""
    if not isinstance(unknown, RiskLevel):
        return float(unknown or 0)
    return {RiskLevel.LOW: 0.0, RiskLevel.MEDIUM: thresholds.medium, RiskLevel.HIGH: thresholds.high}.get(
        unknown, thresholds.critical
    )


def level_of(score: float, thresholds: Thresholds) -> RiskLevel:
    """Return the level of a score."""
    if score >= thresholds.critical:
        return RiskLevel.CRITICAL
    if score >= thresholds.high:
        return RiskLevel.HIGH
    return RiskLevel.MEDIUM if score >= thresholds.medium else RiskLevel.LOW


ASSESSED_BY = "ade-risk/1"  # the version of this algorithm, stored with every assessment; raise it with every change


def usual_quorum(score: float) -> int:
    """Return how many reviewers must approve if no policy applies."""
    return 3 if score >= 75 else 2 if score >= 50 else 1


def _share(count: int, many: int) -> float:
    """Scale logarithmically, so that the first ones count most: 0 for none, 100 for `many` or more."""
    return min(100.0, 100 * math.log1p(max(count, 0)) / math.log1p(many))
