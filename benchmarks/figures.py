"""Small statistics over the rounds of a run."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """The median of some rounds with its extremes."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def spread(self) -> float:
        """The distance between the extremes as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarise(values: Sequence[float]) -> Summary:
    if not values:
        raise ValueError("no values to summarise")
    return Summary(statistics.median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed."""
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]


def deviation(value: float, reference: float) -> float:
    """How far a value lies from its reference, as a share of the reference."""
    return abs(value - reference) / reference
