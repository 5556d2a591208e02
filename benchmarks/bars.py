"""The bars ADE has set itself, as data, and whether a run meets them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contestants import Store, peers_of
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


RATE = "per_second"


def _of(contestants: Sequence[str], *parts: tuple[str, str]) -> list[Score]:
    return [Score(name, parts) for name in contestants]


def _rate(contestant: str, step: str) -> Score:
    return Score(contestant, [(step, RATE)])


SQLITE_PEERS, REDIS_PEERS = peers_of(Store.SQLITE), peers_of(Store.REDIS)
ASYNC_PEERS = ["saq", "taskiq", "arq", "streaq"]
BEST = "the best peer"

SQLITE_BARS: Sequence[Bar] = (
    RatioBar(
        title="Drain, one priority",
        own=_rate("ade", "drain"),
        rivals=_of(SQLITE_PEERS, ("drain", RATE)),
        rivals_title=BEST,
        bar=6,
    ),
    RatioBar(
        title="Drain, ten priorities mixed",
        own=_rate("ade", "drain_priorities"),
        rivals=_of(SQLITE_PEERS, ("drain", RATE)) + _of(SQLITE_PEERS, ("drain_priorities", RATE)),
        rivals_title="the best peer with any priorities",
        bar=6,
        moonshot=12,
    ),
    RatioBar(
        title="Drain, ten priorities mixed",
        own=_rate("ade", "drain_priorities"),
        rivals=[_rate("floor", "drain_priorities")],
        rivals_title="the floor",
    ),
    RatioBar(
        title="Enqueue many",
        own=_rate("ade", "enqueue_many"),
        rivals=_of(SQLITE_PEERS, ("enqueue_many", RATE)),
        rivals_title=BEST,
        bar=3,
    ),
    RatioBar(
        title="Enqueue many",
        own=_rate("ade", "enqueue_many"),
        rivals=_of(["huey", "persist_queue", "dbos"], ("enqueue_many", RATE)),
        rivals_title="the best of those whose calls commit each task",
    ),
    RatioBar(
        title="Enqueue one by one, 64 callers",
        own=_rate("ade", "enqueue_in_flight"),
        rivals=[_rate("huey", "enqueue_in_flight"), _rate("huey", "enqueue_one_by_one")],
        rivals_title="Huey's better figure of 1 and 64 callers",
        bar=3,
    ),
    RatioBar(
        title="Enqueue one by one, one caller",
        own=_rate("ade", "enqueue_one_by_one"),
        rivals=_of(SQLITE_PEERS, ("enqueue_one_by_one", RATE)),
        rivals_title=BEST,
    ),
    LimitBar(title="Pick-up latency, p50", own=Score("ade", [("pickup", "p50_ms")]), unit="ms", bar=3, moonshot=1.5),
    LimitBar(title="Pick-up latency, p99", own=Score("ade", [("pickup", "p99_ms")]), unit="ms", bar=10),
    LimitBar(title="Idle worker, CPU", own=Score("ade", [("idle", "cpu_percent")]), unit="%", bar=1),
    LimitBar(
        title="Idle worker, resident memory",
        own=Score("ade", [("idle", "resident_mb")]),
        unit="MB",
        bar=50,
        moonshot=40,
    ),
)

ONE_LIFE = (("enqueue_one_by_one", "server_us"), ("drain", "server_us"))
BULK_LIFE = (("enqueue_many", "server_us"), ("drain", "server_us"))

REDIS_BARS: Sequence[Bar] = (
    RatioBar(
        title="Drain",
        own=_rate("ade_redis", "drain"),
        rivals=_of(REDIS_PEERS, ("drain", RATE)),
        rivals_title=BEST,
        bar=4,
        moonshot=6,
    ),
    RatioBar(
        title="Drain",
        own=_rate("ade_redis", "drain"),
        rivals=[_rate("floor_redis", "drain")],
        rivals_title="the floor",
        moonshot=2 / 3,
    ),
    RatioBar(
        title="Worker CPU per task",
        own=Score("ade_redis", [("drain", "worker_us")]),
        rivals=_of(REDIS_PEERS, ("drain", "worker_us")),
        rivals_title=BEST,
        bar=1 / 4,
        moonshot=1 / 8,
        less_is_better=True,
    ),
    RatioBar(
        title="Server CPU per task, whole life",
        own=Score("ade_redis", ONE_LIFE),
        rivals=_of(["saq"], *ONE_LIFE),
        rivals_title="SAQ",
        bar=1,
        less_is_better=True,
    ),
    LimitBar(
        title="Server CPU per task, whole life, enqueued one by one",
        own=Score("ade_redis", ONE_LIFE),
        unit="us",
        moonshot=70,
    ),
    LimitBar(
        title="Server CPU per task, whole life, enqueued in bulk",
        own=Score("ade_redis", BULK_LIFE),
        unit="us",
        moonshot=70,
    ),
    RatioBar(
        title="Enqueue one by one",
        own=_rate("ade_redis", "enqueue_one_by_one"),
        rivals=_of(ASYNC_PEERS, ("enqueue_one_by_one", RATE)),
        rivals_title="the best async peer",
        bar=1,
    ),
    RatioBar(
        title="Enqueue one by one",
        own=_rate("ade_redis", "enqueue_one_by_one"),
        rivals=_of(REDIS_PEERS, ("enqueue_one_by_one", RATE)),
        rivals_title="the best of all peers",
        moonshot=1,
    ),
    RatioBar(
        title="Enqueue one by one, blocking calls",
        own=_rate("ade_redis_blocking", "enqueue_one_by_one"),
        rivals=[_rate("huey_redis", "enqueue_one_by_one")],
        rivals_title="Huey",
        bar=0.8,
    ),
    RatioBar(
        title="Enqueue many",
        own=_rate("ade_redis", "enqueue_many"),
        rivals=_of(REDIS_PEERS, ("enqueue_many", RATE)),
        rivals_title=BEST,
        bar=1.5,
        moonshot=2.5,
    ),
    *(
        RatioBar(
            title=f"Pick-up latency, {figure[:3]}",
            own=Score("ade_redis", [("pickup", figure)]),
            rivals=_of(REDIS_PEERS, ("pickup", figure)),
            rivals_title=title,
            bar=bar,
            moonshot=moonshot,
            less_is_better=True,
            rank=rank,
        )
        for figure in ("p50_ms", "p99_ms")
        for title, rank, bar, moonshot in (("the second best peer", 2, 1, None), (BEST, 1, None, 1))
    ),
    LimitBar(title="Idle worker, CPU", own=Score("ade_redis", [("idle", "cpu_percent")]), unit="%"),
    LimitBar(
        title="Idle worker, resident memory",
        own=Score("ade_redis", [("idle", "resident_mb")]),
        unit="MB",
        bar=50,
        moonshot=40,
    ),
    *(
        RatioBar(
            title=f"Drain, {number} worker processes",
            own=_rate("ade_redis", f"drain_{number}"),
            rivals=[_rate("ade_redis", "drain")],
            rivals_title="ADE with one",
        )
        for number in (2, 4)
    ),
)

BARS: Mapping[Store, Sequence[Bar]] = {Store.SQLITE: SQLITE_BARS, Store.REDIS: REDIS_BARS}
