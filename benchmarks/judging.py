"""What a bar is, and whether a run meets it."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import Summary, summarise
from benchmarks.outcomes import Outcomes


@dataclass(frozen=True, slots=True)
class Score:
    """A contestant's figure, or the sum of several, round by round."""

    contestant: str
    parts: Sequence[tuple[str, str]]  # (step, figure)

    def by_round(self, outcomes: Outcomes) -> dict[int, float]:
        columns = [outcomes.by_round(step, self.contestant, figure) for step, figure in self.parts]
        rounds = set.intersection(*(set(column) for column in columns))
        return {number: sum(column[number] for column in columns) for number in sorted(rounds)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioBar:
    """ADE's score against that of the best rival of the same round, so that a slow minute hits both."""

    title: str
    own: Score
    rivals: Sequence[Score]
    rivals_title: str
    bar: float | None = None  # None: the ratio is shown, nothing is asked of it
    moonshot: float | None = None
    less_is_better: bool = False
    rank: int = 1  # 2: against the second best

    def measured(self, outcomes: Outcomes) -> Summary | None:
        ratios: list[float] = []
        for number, own in self.own.by_round(outcomes).items():
            found = [rival.by_round(outcomes).get(number) for rival in self.rivals]
            ordered = sorted((value for value in found if value is not None), reverse=not self.less_is_better)
            if len(ordered) >= self.rank:
                ratios.append(own / ordered[self.rank - 1])
        return summarise(ratios) if ratios else None

    @property
    def heading(self) -> str:
        return f"{self.title}, against {self.rivals_title}"

    @property
    def unit(self) -> str:
        return "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBar:
    """A score of ADE's that must not exceed the bar."""

    title: str
    own: Score
    unit: str
    bar: float | None = None
    moonshot: float | None = None
    less_is_better: bool = True

    def measured(self, outcomes: Outcomes) -> Summary | None:
        values = list(self.own.by_round(outcomes).values())
        return summarise(values) if values else None

    @property
    def heading(self) -> str:
        return self.title


Bar = RatioBar | LimitBar


@dataclass(frozen=True, slots=True)
class Verdict:
    title: str
    measured: str
    bar: str
    met: str
    moonshot: str


def judge(bar: Bar, outcomes: Outcomes) -> Verdict:
    asked = "none set" if bar.bar is None else _asked(bar, bar.bar)
    found = bar.measured(outcomes)
    if found is None:
        return Verdict(bar.heading, "not measured", asked, "not measured", "")
    measured = f"{_amount(bar, found.median)} ({found.low:.2f} to {found.high:.2f})"
    met = "" if bar.bar is None else _word(bar, found, bar.bar)
    moonshot = "" if bar.moonshot is None else f"{_asked(bar, bar.moonshot)}: {_word(bar, found, bar.moonshot)}"
    return Verdict(bar.heading, measured, asked, met, moonshot)


def _amount(bar: Bar, value: float) -> str:
    return f"{value:.2f}{bar.unit}" if bar.unit == "x" else f"{value:.2f} {bar.unit}"


def _asked(bar: Bar, value: float) -> str:
    sign = "≤" if bar.less_is_better else "≥"
    return f"{sign} {value:.3g}{bar.unit}" if bar.unit == "x" else f"{sign} {value:g} {bar.unit}"


def _word(bar: Bar, found: Summary, asked: float) -> str:
    met = found.median <= asked if bar.less_is_better else found.median >= asked
    return "met" if met else "not met"
