"""The bars ADE has set itself, as data, and whether a run meets them."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.contestants import PEERS
from benchmarks.figures import Summary, summarise
from benchmarks.outcomes import Outcomes

ADE = "ade"


@dataclass(frozen=True, slots=True)
class RatioBar:
    """ADE's rate must be at least `factor` times that of the best rival, round by round."""

    title: str
    step: str
    rivals: Sequence[tuple[str, str]]  # (step, contestant)
    rivals_title: str
    factor: float | None  # None: the ratio is shown, nothing is asked of it
    moonshot: float | None = None

    def ratio(self, outcomes: Outcomes) -> Summary | None:
        """ADE against the best rival of the same round, so that a slow minute hits both."""
        own = outcomes.by_round(self.step, ADE, "per_second")
        ratios: list[float] = []
        for number, rate in own.items():
            found = [outcomes.by_round(step, peer, "per_second").get(number) for step, peer in self.rivals]
            rates = [rival for rival in found if rival is not None]
            if rates:
                ratios.append(rate / max(rates))
        return summarise(ratios) if ratios else None


@dataclass(frozen=True, slots=True)
class LimitBar:
    """A figure of ADE's that must not exceed `limit`."""

    title: str
    step: str
    figure: str
    unit: str
    limit: float
    moonshot: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    title: str
    measured: str
    bar: str
    met: str
    moonshot: str


def _all_peers(step: str) -> list[tuple[str, str]]:
    return [(step, peer) for peer in PEERS]


BARS: Sequence[RatioBar | LimitBar] = (
    RatioBar("Drain, one priority", "drain", _all_peers("drain"), "the best peer", 6),
    RatioBar(
        "Drain, ten priorities mixed",
        "drain_priorities",
        _all_peers("drain") + _all_peers("drain_priorities"),
        "the best peer with any priorities",
        6,
        moonshot=12,
    ),
    RatioBar("Enqueue many", "enqueue_many", _all_peers("enqueue_many"), "the best peer", 3),
    RatioBar(
        "Enqueue many",
        "enqueue_many",
        [("enqueue_many", "huey"), ("enqueue_many", "persist_queue")],
        "the best of Huey and persist-queue, whose calls commit each task",
        None,
    ),
    RatioBar(
        "Enqueue one by one, 64 callers",
        "enqueue_in_flight",
        [("enqueue_in_flight", "huey"), ("enqueue_one_by_one", "huey")],
        "Huey's better figure of 1 and 64 callers",
        3,
    ),
    RatioBar(
        "Enqueue one by one, one caller",
        "enqueue_one_by_one",
        _all_peers("enqueue_one_by_one"),
        "the best peer",
        None,
    ),
    LimitBar("Pick-up latency, p50", "pickup", "p50_ms", "ms", 3, moonshot=1.5),
    LimitBar("Pick-up latency, p99", "pickup", "p99_ms", "ms", 10),
    LimitBar("Idle worker, CPU", "idle", "cpu_percent", "%", 1),
    LimitBar("Idle worker, resident memory", "idle", "resident_mb", "MB", 50, moonshot=40),
)


def judge(bar: RatioBar | LimitBar, outcomes: Outcomes) -> Verdict:
    if isinstance(bar, RatioBar):
        return _judge_ratio(bar, bar.ratio(outcomes))
    return _judge_limit(bar, outcomes.summary(bar.step, ADE, bar.figure))


def _judge_ratio(bar: RatioBar, ratio: Summary | None) -> Verdict:
    title = f"{bar.title}, against {bar.rivals_title}"
    asked = f"≥ {bar.factor:g}x" if bar.factor is not None else "none set"
    if ratio is None:
        return Verdict(title, "not measured", asked, "not measured", "")
    measured = f"{ratio.median:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
    met = "" if bar.factor is None else _word(ratio.median >= bar.factor)
    moonshot = "" if bar.moonshot is None else f"≥ {bar.moonshot:g}x: {_word(ratio.median >= bar.moonshot)}"
    return Verdict(title, measured, asked, met, moonshot)


def _judge_limit(bar: LimitBar, found: Summary | None) -> Verdict:
    asked = f"≤ {bar.limit:g} {bar.unit}"
    if found is None:
        return Verdict(bar.title, "not measured", asked, "not measured", "")
    measured = f"{found.median:.2f} {bar.unit} ({found.low:.2f} to {found.high:.2f})"
    reached = bar.moonshot is not None and found.median <= bar.moonshot
    moonshot = "" if bar.moonshot is None else f"≤ {bar.moonshot:g} {bar.unit}: {_word(reached)}"
    return Verdict(bar.title, measured, asked, _word(found.median <= bar.limit), moonshot)


def _word(met: bool) -> str:
    return "met" if met else "not met"
