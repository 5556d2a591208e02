"""What is measured, how large, and in which order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.contract import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the plan: a measure under the name it has in the tables, with its sizes."""

    name: str
    title: str
    measure: str
    sizes: Mapping[str, float]
    # A contestant that is ten times faster needs more tasks for a time that means anything.
    sizes_for: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def options(self, contestant: str, place: str) -> Options:
        sizes = {**self.sizes, **self.sizes_for.get(contestant, {})}
        return replace(Options(place=place), **sizes)  # type: ignore[arg-type]  # sizes are fields of Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int
    timeout_seconds: float
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Job:
    round: int
    step: Step
    contestant: str


TITLES = {
    "enqueue_one_by_one": "Enqueue one by one, one caller",
    "enqueue_in_flight": "Enqueue one by one, 64 callers in flight",
    "enqueue_many": "Enqueue many, batches of 1,000",
    "drain": "Drain, one priority",
    "drain_priorities": "Drain, ten priorities mixed",
    "pickup": "Pick-up latency across processes at 20 tasks/s",
    "idle": "Idle worker",
}


def _step(name: str, measure: str, sizes: Mapping[str, float], **sizes_for: Mapping[str, float]) -> Step:
    return Step(name=name, title=TITLES[name], measure=measure, sizes=sizes, sizes_for=sizes_for)


def _steps(tasks: int, many: int, seconds: float, idle_seconds: float) -> list[Step]:
    """`tasks` for what goes one by one, `many` for what goes in bulk."""
    one, bulk = {"tasks": tasks}, {"tasks": many}
    mixed = {"priorities": 10}
    return [
        _step("enqueue_one_by_one", "enqueue_one_by_one", one),
        _step("enqueue_in_flight", "enqueue_in_flight", one, ade=bulk),
        _step("enqueue_many", "enqueue_many", one, ade=bulk, litequeue=bulk),
        _step("drain", "drain", one, ade=bulk),
        _step("drain_priorities", "drain", one | mixed, ade=bulk | mixed),
        _step("pickup", "pickup", {"seconds": seconds, "rate": 20.0}),
        _step("idle", "idle", {"seconds": idle_seconds, "settle": min(2.0, idle_seconds / 2)}),
    ]


FULL = Plan(rounds=3, timeout_seconds=120, steps=_steps(5000, 20_000, seconds=15, idle_seconds=6))
QUICK = Plan(rounds=1, timeout_seconds=45, steps=_steps(1000, 4000, seconds=3, idle_seconds=2))


def interleaved(plan: Plan, contestants: Sequence[str]) -> Iterator[Job]:
    """Every contestant in turn for each step, another one first in each round."""
    for number in range(plan.rounds):
        first = number % len(contestants)
        for step in plan.steps:
            for contestant in (*contestants[first:], *contestants[:first]):
                yield Job(number, step, contestant)
