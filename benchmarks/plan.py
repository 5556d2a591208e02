"""What is measured, how large, and in which order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.contestants import ENTRIES, Role, Store, Subject, of_store
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
    roles: Sequence[Role] = tuple(Role)
    subject: Subject = Subject.TASKS

    def options(self, contestant: str, folder: str, server: str = "") -> Options:
        sizes = {**self.sizes, **self.sizes_for.get(contestant, {})}
        return replace(Options(folder=folder, server=server), **sizes)  # type: ignore[arg-type]  # fields of Options

    def takes(self, contestant: str) -> bool:
        entry = ENTRIES[contestant]
        chosen = not entry.steps or self.name in entry.steps
        return entry.subject is self.subject and entry.role in self.roles and chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured on one store."""

    store: Store
    rounds: int
    timeout_seconds: float
    steps: Sequence[Step]
    contestants: Sequence[str]

    def of(self, contestants: Sequence[str]) -> "Plan":
        return replace(self, contestants=[name for name in of_store(self.store) if name in contestants])


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
    "drain_2": "Drain, two worker processes",
    "drain_4": "Drain, four worker processes",
    "pending_10k": "Drain with 10,000 tasks pending",
    "pending_100k": "Drain with 100,000 tasks pending",
    "pending_1m": "Drain with 1,000,000 tasks pending",
    "finished_1m": "Drain with 10,000 tasks pending and 1,000,000 finished",
    "pickup": "Pick-up latency across processes at 20 tasks/s",
    "idle": "Idle worker",
    "locks_uncontended": "Locks, one agent that nobody disturbs",
    "locks_contended": "Locks, 50 agents in two processes that all want the same one",
    "http_create": "HTTP, create a task, 16 connections",
    "http_get": "HTTP, get a task, 16 connections",
    "http_list": "HTTP, list 50 tasks, 16 connections",
    "http_events": "HTTP, subscribers to all events while tasks are made and run",
}
SLOWER = {"celery": 0.5, "rq": 0.15, "dbos": 0.1}  # so that a round of theirs does not take a minute


@dataclass(frozen=True, slots=True)
class Size:
    """How large the measurements are: `one` for what goes one by one, `many` for what goes in bulk."""

    one: int
    many: int
    pickup_seconds: float
    idle_seconds: float
    lock_seconds: float
    fight_seconds: float
    http_seconds: float
    http_stock: int
    events_seconds: float
    events_rate: float
    subscribers: int


def _steps(store: Store, size: Size) -> list[Step]:
    rivals = {name: {"tasks": int(size.one * share)} for name, share in SLOWER.items()}
    fast = {name: {"tasks": size.many} for name in of_store(store) if ENTRIES[name].role is not Role.PEER}
    one, bulk = rivals, rivals | fast

    def step(name: str, measure: str, sizes_for: Mapping[str, Mapping[str, float]], **sizes: float) -> Step:
        return Step(name=name, title=TITLES[name], measure=measure, sizes=sizes, sizes_for=sizes_for)

    mixed = {name: {**sizes, "priorities": 10} for name, sizes in bulk.items()}
    embedded = [
        step("enqueue_in_flight", "enqueue_in_flight", bulk, tasks=size.one),
        step("drain_priorities", "drain", mixed, tasks=size.one, priorities=10),
    ]
    served = [
        replace(
            step(f"drain_{number}", "drain", {}, tasks=max(8000, 2 * size.many), processes=number),
            roles=(Role.OWN,),
        )
        for number in (2, 4)
    ]
    return [
        step("enqueue_one_by_one", "enqueue_one_by_one", one, tasks=size.one),
        step("enqueue_many", "enqueue_many", {**bulk, **_bulk_callers(size)}, tasks=size.one),
        step("drain", "drain", bulk, tasks=size.one),
        *(served if store is Store.REDIS else embedded),
        step("pickup", "pickup", {}, seconds=size.pickup_seconds, rate=20.0),
        step("idle", "idle", {}, seconds=size.idle_seconds, settle=min(1.5, size.idle_seconds / 2)),
        *_lock_steps(size),
        *_http_steps(size),
    ]


def _lock_steps(size: Size) -> list[Step]:
    sizes = {
        "locks_uncontended": {"seconds": size.lock_seconds},
        "locks_contended": {"seconds": size.fight_seconds, "agents": 50, "processes": 2},
    }
    return [
        Step(name=name, title=TITLES[name], measure=name, sizes=sizes[name], subject=Subject.LOCKS) for name in sizes
    ]


def _http_steps(size: Size) -> list[Step]:
    sizes: Mapping[str, Mapping[str, float]] = {
        "http_create": {"seconds": size.http_seconds},
        "http_get": {"seconds": size.http_seconds, "stock": min(1000, size.http_stock)},
        "http_list": {"seconds": size.http_seconds, "stock": size.http_stock},
    }
    events = Step(
        name="http_events",
        title=TITLES["http_events"],
        measure="http_events",
        sizes={
            "seconds": size.events_seconds,
            "rate": size.events_rate,
            "subscribers": size.subscribers,
            "settle": size.events_seconds / 5,
        },
        roles=(Role.OWN,),
        subject=Subject.HTTP,
    )
    return [
        *(
            Step(name=name, title=TITLES[name], measure=name, sizes=each, subject=Subject.HTTP)
            for name, each in sizes.items()
        ),
        events,
    ]


def _bulk_callers(size: Size) -> Mapping[str, Mapping[str, float]]:
    """The peers whose bulk call is as fast as ADE's, or nearly so."""
    return {name: {"tasks": size.many} for name in ("litequeue", "streaq", "saq", "rq")}


def _plan(store: Store, size: Size, rounds: int, contestants: Sequence[str] = ()) -> Plan:
    steps = _steps(store, size)
    chosen = contestants or of_store(store)
    return Plan(store=store, rounds=rounds, timeout_seconds=90, steps=steps, contestants=chosen)


_FULL = Size(
    one=3000,
    many=20_000,
    pickup_seconds=5.5,
    idle_seconds=2,
    lock_seconds=0.7,
    fight_seconds=3,
    http_seconds=1.5,
    http_stock=10_000,
    events_seconds=5,
    events_rate=1000,
    subscribers=1000,
)
FULL_SIZE = {Store.SQLITE: _FULL, Store.REDIS: replace(_FULL, one=2500, many=15_000, fight_seconds=10)}
QUICK_SIZE = Size(
    one=500,
    many=2000,
    pickup_seconds=2,
    idle_seconds=1,
    lock_seconds=0.5,
    fight_seconds=2,
    http_seconds=0.2,
    http_stock=500,
    events_seconds=0.5,
    events_rate=300,
    subscribers=100,
)
QUICK_CONTESTANTS = {
    Store.SQLITE: ["ade", "huey", "litequeue", "floor", "ade_locks", "ade_http", "bare"],
    Store.REDIS: [
        *("ade_redis", "ade_redis_blocking", "saq", "huey_redis", "floor_redis"),
        *("ade_redis_locks", "ade_redis_locks_blocking", "redis_py", "redis_py_blocking"),
        "ade_redis_http",
    ],
}
FULL = tuple(_plan(store, FULL_SIZE[store], rounds=3) for store in Store)
QUICK = tuple(_plan(store, QUICK_SIZE, 1, QUICK_CONTESTANTS[store]) for store in Store)


GROWTH_SIZES = {
    "pending_10k": {"tasks": 10_000},
    "pending_100k": {"tasks": 100_000},
    "pending_1m": {"tasks": 1_000_000},
    "finished_1m": {"tasks": 10_000, "finished": 1_000_000},
}
GROWTH_STEPS = [
    Step(name=name, title=TITLES[name], measure="growth", sizes=sizes, roles=(Role.OWN,))
    for name, sizes in GROWTH_SIZES.items()
]
GROWTH = tuple(
    Plan(store=store, rounds=1, timeout_seconds=900, steps=GROWTH_STEPS, contestants=[own])
    for store, own in ((Store.SQLITE, "ade"), (Store.REDIS, "ade_redis"))
)


def interleaved(plan: Plan) -> Iterator[Job]:
    """Every contestant in turn for each step, another one first in each round."""
    for number in range(plan.rounds):
        for step in plan.steps:
            takers = [name for name in plan.contestants if step.takes(name)]
            first = number % max(1, len(takers))
            for contestant in (*takers[first:], *takers[:first]):
                yield Job(number, step, contestant)
