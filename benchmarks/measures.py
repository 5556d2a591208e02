"""The measurements, the same for every contestant. Each returns named figures."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.contract import Contestant, Options, payload, payloads
from benchmarks.figures import percentile
from benchmarks.pacing import random_moments
from benchmarks.process_usage import cpu_seconds, resident_megabytes
from benchmarks.worker_process import STARTS_FILE, WorkerProcess

Figures = Mapping[str, float]
Measure = Callable[[str, Contestant, Options], Figures]

WARM_UP_TEXT = payload(99_999_999, 200)
START_DEADLINE_SECONDS = 30.0


def enqueue_one_by_one(name: str, contestant: Contestant, options: Options) -> Figures:
    return _rate(options, contestant.enqueue_one_by_one(options.folder, payloads(options)))


def enqueue_in_flight(name: str, contestant: Contestant, options: Options) -> Figures:
    return _rate(options, contestant.enqueue_in_flight(options.folder, payloads(options), options.callers))


def enqueue_many(name: str, contestant: Contestant, options: Options) -> Figures:
    return _rate(options, contestant.enqueue_many(options.folder, payloads(options), options.batch))


def drain(name: str, contestant: Contestant, options: Options) -> Figures:
    contestant.fill(options.folder, payloads(options), options.priorities)
    return _rate(options, contestant.drain(options.folder, options.tasks))


def pickup(name: str, contestant: Contestant, options: Options) -> Figures:
    """Milliseconds from the enqueue call in one process to the function's first line in another."""
    moments = random_moments(options.rate, options.seconds, seed=options.tasks)
    texts = [payload(number, options.payload_bytes) for number in range(len(moments))]
    with WorkerProcess(name, options):
        _warm_up(contestant, options)
        calls = contestant.enqueue_at(options.folder, moments, texts)
        starts = _wait_for_starts(options.folder, len(texts) + 1)
    waits = [(starts[number] - called) / 1e6 for number, called in enumerate(calls)]
    return {"p50_ms": percentile(waits, 50), "p99_ms": percentile(waits, 99), "samples": len(waits)}


def idle(name: str, contestant: Contestant, options: Options) -> Figures:
    """What a worker costs that has run one task and now waits."""
    with WorkerProcess(name, options) as worker:
        _warm_up(contestant, options)
        time.sleep(options.settle)
        before, began = cpu_seconds(worker.pid), time.perf_counter()
        time.sleep(options.seconds)
        used, passed = cpu_seconds(worker.pid) - before, time.perf_counter() - began
        return {"cpu_percent": 100 * used / passed, "resident_mb": resident_megabytes(worker.pid)}


MEASURES: Mapping[str, Measure] = {
    measure.__name__: measure for measure in (enqueue_one_by_one, enqueue_in_flight, enqueue_many, drain, pickup, idle)
}


def _rate(options: Options, seconds: float) -> Figures:
    return {"per_second": options.tasks / seconds, "tasks": options.tasks}


def _warm_up(contestant: Contestant, options: Options) -> None:
    """One task through the whole way: imports, files and connections are in place on both sides."""
    contestant.enqueue_at(options.folder, [0.0], [WARM_UP_TEXT])
    _wait_for_starts(options.folder, 1)


def _wait_for_starts(place: Path, count: int) -> dict[int, int]:
    """The start time of each task by its number, once `count` tasks have started."""
    deadline = time.monotonic() + START_DEADLINE_SECONDS
    lines: list[str] = []
    while time.monotonic() < deadline:
        lines = _read_lines(place / STARTS_FILE)
        if len(lines) >= count:
            return {int(number): int(moment) for number, moment in map(str.split, lines)}
        time.sleep(0.02)
    raise TimeoutError(f"only {len(lines)} of {count} tasks started within {START_DEADLINE_SECONDS} s")


def _read_lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
