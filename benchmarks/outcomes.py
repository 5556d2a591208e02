"""What came out of a run: one outcome per job, and the questions the report asks of them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.figures import Summary, deviation, summarise
from benchmarks.machine import TOLERANCE, Speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One job's figures, or why there are none; with the machine's speed around it."""

    round: int
    step: str
    contestant: str
    before: Speed
    after: Speed
    figures: Mapping[str, float] = field(default_factory=dict)
    not_offered: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Outcomes:
    all: Sequence[Outcome]

    def summary(self, step: str, contestant: str, figure: str) -> Summary | None:
        values = [outcome.figures[figure] for outcome in self._with(step, contestant, figure)]
        return summarise(values) if values else None

    def by_round(self, step: str, contestant: str, figure: str) -> dict[int, float]:
        return {outcome.round: outcome.figures[figure] for outcome in self._with(step, contestant, figure)}

    def reason_for_nothing(self, step: str, contestant: str) -> str | None:
        for outcome in self.all:
            if (outcome.step, outcome.contestant) == (step, contestant):
                if outcome.failure:
                    return f"failed: {outcome.failure}"
                if outcome.not_offered:
                    return f"n/a: {outcome.not_offered}"
        return None

    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.all if outcome.failure]

    def typical_speed(self) -> Speed:
        """The median of all probes of the run."""
        probes = [speed for outcome in self.all for speed in (outcome.before, outcome.after)]
        return Speed(
            statistics.median(speed.cpu_ms for speed in probes),
            statistics.median(speed.sync_ms for speed in probes),
        )

    def disturbed(self) -> list[Outcome]:
        """The jobs around which the machine was more than a quarter faster or slower than typical."""
        typical = self.typical_speed()
        return [outcome for outcome in self.all if disturbance(outcome, typical) > TOLERANCE]

    def _with(self, step: str, contestant: str, figure: str) -> list[Outcome]:
        return [
            outcome
            for outcome in self.all
            if (outcome.step, outcome.contestant) == (step, contestant) and figure in outcome.figures
        ]


def disturbance(outcome: Outcome, typical: Speed) -> float:
    """The largest deviation of the four probes around a job."""
    return max(
        max(deviation(speed.cpu_ms, typical.cpu_ms), deviation(speed.sync_ms, typical.sync_ms))
        for speed in (outcome.before, outcome.after)
    )
