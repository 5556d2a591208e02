"""The bars ADE has set itself, as data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.contestants import Store, peers_of
from benchmarks.http_bars import http_bars
from benchmarks.judging import Bar, LimitBar, RatioBar, Score
from benchmarks.plan import Plan


def bars_of(plan: Plan) -> list[Bar]:
    """The bars that ask for nothing but what the plan measures of ADE."""
    steps = {step.name for step in plan.steps}
    return [bar for bar in BARS[plan.store] if {step for step, _ in bar.own.parts} <= steps]


RATE, WORKER_CPU, SERVER_CPU = "per_second", "worker_us", "server_us"
SQLITE_PEERS, REDIS_PEERS = peers_of(Store.SQLITE), peers_of(Store.REDIS)
ASYNC_PEERS = ["saq", "taskiq", "arq", "streaq"]
BEST = "the best peer"
ONE_LIFE = (("enqueue_one_by_one", SERVER_CPU), ("drain", SERVER_CPU))
BULK_LIFE = (("enqueue_many", SERVER_CPU), ("drain", SERVER_CPU))


def _rates(contestants: Sequence[str], *steps: str) -> list[Score]:
    return [Score(name, [(step, RATE)]) for step in steps for name in contestants]


def _locks(own: str, handovers: float | None) -> Iterator[Bar]:
    title = "Locks, 50 agents want one"
    rate, order = (Score(own, [("locks_contended", each)]) for each in ("handovers_per_second", "overtaken"))
    yield LimitBar(title=f"{title}, hand-overs", own=rate, unit="/s", bar=handovers, less_is_better=False)
    yield LimitBar(title=f"{title}, overtaken at most", own=order, unit="times", bar=72)


def _lock_ratios() -> Iterator[Bar]:
    for suffix, form in (("", ""), ("_blocking", ", blocking calls")):
        for rival, rivals_title, bar in (("redis_py", "redis-py", 1), ("pottery", "pottery", None)):
            own, other = (
                Score(f"{name}{suffix}", [("locks_uncontended", "pairs_per_second")])
                for name in ("ade_redis_locks", rival)
            )
            title = f"Locks, one agent{form}"
            yield RatioBar(title=title, own=own, rivals=[other], rivals_title=rivals_title, bar=bar)


def _faster(
    title: str,
    own: str,
    step: str,
    rivals: Sequence[Score],
    rivals_title: str,
    bar: float | None = None,
    moonshot: float | None = None,
) -> RatioBar:
    [score] = _rates([own], step)
    return RatioBar(title=title, own=score, rivals=rivals, rivals_title=rivals_title, bar=bar, moonshot=moonshot)


def _cheaper(
    title: str, own: str, parts: Sequence[tuple[str, str]], rivals: Sequence[str], rivals_title: str
) -> RatioBar:
    scores = [Score(name, parts) for name in rivals]
    return RatioBar(
        title=title, own=Score(own, parts), rivals=scores, rivals_title=rivals_title, bar=1, less_is_better=True
    )


def _idle(own: str, cpu_percent: float | None) -> list[Bar]:
    cpu, memory = Score(own, [("idle", "cpu_percent")]), Score(own, [("idle", "resident_mb")])
    return [
        LimitBar(title="Idle worker, CPU", own=cpu, unit="%", bar=cpu_percent),
        LimitBar(title="Idle worker, resident memory", own=memory, unit="MB", bar=50, moonshot=40),
    ]


def _growth(own: str) -> Iterator[Bar]:
    [usual] = _rates([own], "pending_10k")
    for step, title in (("pending_1m", "1,000,000 tasks pending"), ("finished_1m", "1,000,000 tasks finished")):
        yield _faster(f"Drain with {title}", own, step, [usual], "10,000 pending", 0.8)
        memory = [Score(own, [(each, "resident_mb")]) for each in (step, "pending_10k")]
        yield RatioBar(
            title=f"Worker's memory with {title}",
            own=memory[0],
            rivals=memory[1:],
            rivals_title="10,000 pending",
            less_is_better=True,
        )


def _pickups_on_redis() -> Iterator[Bar]:
    for figure in ("p50_ms", "p99_ms"):
        title, parts = f"Pick-up latency, {figure[:3]}", [("pickup", figure)]
        yield replace(_cheaper(title, "ade_redis", parts, REDIS_PEERS, "the second best peer"), rank=2)
        yield replace(_cheaper(title, "ade_redis", parts, REDIS_PEERS, BEST), bar=None, moonshot=1)


COMMITTERS = ["huey", "persist_queue", "dbos"]
MIXED = "Drain, ten priorities mixed"
SQLITE_BARS: Sequence[Bar] = (
    _faster("Drain, one priority", "ade", "drain", _rates(SQLITE_PEERS, "drain"), BEST, 6),
    _faster(
        MIXED,
        "ade",
        "drain_priorities",
        _rates(SQLITE_PEERS, "drain", "drain_priorities"),
        "the best peer with any priorities",
        6,
        moonshot=12,
    ),
    _faster(MIXED, "ade", "drain_priorities", _rates(["floor"], "drain_priorities"), "the floor"),
    _faster("Enqueue many", "ade", "enqueue_many", _rates(SQLITE_PEERS, "enqueue_many"), BEST, 3),
    _faster(
        "Enqueue many",
        "ade",
        "enqueue_many",
        _rates(COMMITTERS, "enqueue_many"),
        "the best of those whose calls commit each task",
    ),
    _faster(
        "Enqueue one by one, 64 callers",
        "ade",
        "enqueue_in_flight",
        _rates(["huey"], "enqueue_in_flight", "enqueue_one_by_one"),
        "Huey's better figure of 1 and 64 callers",
        3,
    ),
    _faster(
        "Enqueue one by one, one caller", "ade", "enqueue_one_by_one", _rates(SQLITE_PEERS, "enqueue_one_by_one"), BEST
    ),
    LimitBar(title="Pick-up latency, p50", own=Score("ade", [("pickup", "p50_ms")]), unit="ms", bar=3, moonshot=1.5),
    LimitBar(title="Pick-up latency, p99", own=Score("ade", [("pickup", "p99_ms")]), unit="ms", bar=10),
    *_idle("ade", cpu_percent=1),
    *_locks("ade_locks", None),
    *http_bars("ade_http", "bare", "bare_storing", "fastapi"),
    *_growth("ade"),
)

LIFE, SINGLE = "Server CPU per task, whole life", "Enqueue one by one"
REDIS_BARS: Sequence[Bar] = (
    _faster("Drain", "ade_redis", "drain", _rates(REDIS_PEERS, "drain"), BEST, 4, moonshot=6),
    _faster("Drain", "ade_redis", "drain", _rates(["floor_redis"], "drain"), "the floor", moonshot=2 / 3),
    replace(
        _cheaper("Worker CPU per task", "ade_redis", [("drain", WORKER_CPU)], REDIS_PEERS, BEST),
        bar=1 / 4,
        moonshot=1 / 8,
    ),
    _cheaper(LIFE, "ade_redis", ONE_LIFE, ["saq"], "SAQ"),
    LimitBar(title=f"{LIFE}, enqueued one by one", own=Score("ade_redis", ONE_LIFE), unit="us", moonshot=70),
    LimitBar(title=f"{LIFE}, enqueued in bulk", own=Score("ade_redis", BULK_LIFE), unit="us", moonshot=70),
    _faster(
        SINGLE,
        "ade_redis",
        "enqueue_one_by_one",
        _rates(ASYNC_PEERS, "enqueue_one_by_one"),
        "the best async peer",
        1,
    ),
    _faster(
        SINGLE,
        "ade_redis",
        "enqueue_one_by_one",
        _rates(REDIS_PEERS, "enqueue_one_by_one"),
        "the best of all peers",
        moonshot=1,
    ),
    _faster(
        f"{SINGLE}, blocking calls",
        "ade_redis_blocking",
        "enqueue_one_by_one",
        _rates(["huey_redis"], "enqueue_one_by_one"),
        "Huey",
        0.8,
    ),
    _faster("Enqueue many", "ade_redis", "enqueue_many", _rates(REDIS_PEERS, "enqueue_many"), BEST, 1.5, moonshot=2.5),
    *_pickups_on_redis(),
    *_idle("ade_redis", cpu_percent=None),
    *_lock_ratios(),
    *_locks("ade_redis_locks", 1000),
    *http_bars("ade_redis_http", "bare_redis", "bare_redis_storing", "fastapi_redis"),
    *(
        _faster(
            f"Drain, {number} worker processes",
            "ade_redis",
            f"drain_{number}",
            _rates(["ade_redis"], "drain"),
            "ADE with one",
        )
        for number in (2, 4)
    ),
    *_growth("ade_redis"),
)

BARS: Mapping[Store, Sequence[Bar]] = {Store.SQLITE: SQLITE_BARS, Store.REDIS: REDIS_BARS}
