"""Histograms with fixed buckets: small, added up without loss, and good for percentiles that are about right."""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

# The upper ends of the buckets; above the last there is one more. They must stay as they are: counts kept under other
# bounds would be read wrongly.
MS_BOUNDS = (
    *(1, 5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000, 60_000),
    *(300_000, 1_800_000, 3_600_000),
)
ATTEMPT_BOUNDS = (1, 2, 3, 5, 10, 20)


class Histogram(Struct, array_like=True):
    """How many values fell into each bucket, and what they come to together."""

    counts: list[int]
    total: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def note(self, bounds: Sequence[int], value: int) -> None:
        self.counts[bisect_left(bounds, value)] += 1
        self.total += value

    def add(self, other: "Histogram") -> None:
        for place, count in enumerate(other.counts):
            self.counts[place] += count
        self.total += other.total


def empty(bounds: Sequence[int]) -> Histogram:
    return Histogram([0] * (len(bounds) + 1))


def quantile(bounds: Sequence[int], histogram: Histogram, part: float) -> float | None:
    """The value that this part of all values does not exceed, as if they lay evenly in each bucket; None without any.

    Above the last bound nothing is known but that, so it is the answer.
    """
    count = histogram.count
    if not count:
        return None
    wanted, below = part * count, 0
    for place, inside in enumerate(histogram.counts[: len(bounds)]):
        if inside and below + inside >= wanted:
            low = bounds[place - 1] if place else 0
            return low + (bounds[place] - low) * max(wanted - below, 0) / inside
        below += inside
    return float(bounds[-1])
