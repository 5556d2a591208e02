"""The measurements, the same for every contestant. Each returns named figures."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from benchmarks.contract import Contestant, NotOffered, Options, payload, payloads
from benchmarks.figures import percentile
from benchmarks.producing import Producer, producer_of, random_moments
from benchmarks.starts import Starts
from benchmarks.wire import Wire
from benchmarks.worker_process import WorkerProcesses

Figures = Mapping[str, float]
Measure = Callable[[str, Contestant, Options], Figures]

WARM_UP_SIZE = 200
POLL_SECONDS = 0.002
START_DEADLINE_SECONDS = 30.0


def enqueue_one_by_one(name: str, contestant: Contestant, options: Options) -> Figures:
    return _enqueued(contestant, options, lambda producer: producer.one_by_one(payloads(options)))


def enqueue_in_flight(name: str, contestant: Contestant, options: Options) -> Figures:
    return _enqueued(contestant, options, lambda producer: producer.in_flight(payloads(options), options.callers))


def enqueue_many(name: str, contestant: Contestant, options: Options) -> Figures:
    return _enqueued(contestant, options, lambda producer: producer.many(payloads(options), options.batch))


def drain(name: str, contestant: Contestant, options: Options) -> Figures:
    """From the moment every worker process has started a task to the last acknowledgement; on a full queue."""
    producer = _producer(contestant, options)
    if options.priorities > 1:
        producer.mixed(payloads(options), options.priorities)
    else:
        producer.many(payloads(options), options.batch)
    starts = Starts.create(options.place.folder, options.tasks, options.processes)
    with (
        contestant.watch(options.place) as unfinished,
        server_cpu(options) as server_used,
        WorkerProcesses(name, options) as workers,
    ):
        _wait_until(lambda: starts.all_began() or starts.every_task(), workers)
        if not starts.all_began():
            raise NotOffered("the queue was empty before all processes had begun")
        cpu_before, measured_from = workers.cpu_seconds(), time.monotonic_ns()
        _wait_until(starts.every_task, workers, deadline=float("inf"))
        # Only now look at the store: counting while it works would slow it down.
        _wait_until(lambda: unfinished(options.tasks) == 0, workers)
        ended = time.monotonic_ns()
        cpu, server = workers.cpu_seconds() - cpu_before, server_used()
    began = starts.when_all_began()
    return {
        "per_second": starts.count_since(began) / ((ended - began) / 1e9),
        "tasks": options.tasks,
        "worker_us": 1e6 * cpu / max(1, starts.count_since(measured_from)),
        **_per_task(options, server),
    }


def growth(name: str, contestant: Contestant, options: Options) -> Figures:
    """How fast the first of many pending tasks are drained, after many others were finished and kept."""
    first, last = options.finished, options.finished + options.sample
    texts = [payload(number, options.payload_bytes) for number in range(options.finished + options.tasks)]
    starts = Starts.create(options.place.folder, len(texts))
    if options.finished:
        _producer(contestant, options).many(texts[:first], options.batch)
        with contestant.watch(options.place) as unfinished, WorkerProcesses(name, options) as workers:
            _wait_until(lambda: starts.in_order() == first, workers, deadline=float("inf"))
            _wait_until(lambda: unfinished(first) == 0, workers)
    _producer(contestant, options).many(texts[first:], options.batch)
    _await_quiet_server(options)
    with WorkerProcesses(name, options) as workers:
        _wait_until(lambda: starts.in_order() >= last, workers, deadline=float("inf"))
        resident = workers.resident_megabytes()
    sample = starts.moments()[first:last]
    seconds = (max(sample) - min(sample)) / 1e9
    return {"per_second": options.sample / seconds, "tasks": options.tasks, "resident_mb": resident}


def _await_quiet_server(options: Options) -> None:
    """Until it has rewritten its file after the filling: that takes a whole core, and has an end."""
    if options.server:
        with Wire(options.server) as wire:
            while any(
                wire.facts("persistence").get(f"aof_rewrite_{what}") == "1" for what in ("in_progress", "scheduled")
            ):
                time.sleep(0.2)


def pickup(name: str, contestant: Contestant, options: Options) -> Figures:
    """Milliseconds from the enqueue call in one process to the function's first line in another."""
    moments = random_moments(options.rate, options.seconds, seed=options.tasks)
    texts = [payload(number, options.payload_bytes) for number in range(len(moments))]
    starts = Starts.create(options.place.folder, len(texts) + 1)
    with WorkerProcesses(name, options) as workers:
        _warm_up(contestant, options, starts, len(texts), workers)
        calls = _producer(contestant, options).at(moments, texts)
        _wait_until(starts.every_task, workers)
    waits = [(start - call) / 1e6 for call, start in zip(calls, starts.moments(), strict=False)]
    return {"p50_ms": percentile(waits, 50), "p99_ms": percentile(waits, 99), "samples": len(waits)}


def idle(name: str, contestant: Contestant, options: Options) -> Figures:
    """What a worker costs that has run one task and now waits."""
    starts = Starts.create(options.place.folder, 1)
    with WorkerProcesses(name, options) as workers:
        _warm_up(contestant, options, starts, 0, workers)
        time.sleep(options.settle)
        before, began = workers.cpu_seconds(), time.perf_counter()
        time.sleep(options.seconds)
        used, passed = workers.cpu_seconds() - before, time.perf_counter() - began
        return {"cpu_percent": 100 * used / passed, "resident_mb": workers.resident_megabytes()}


MEASURES: Mapping[str, Measure] = {
    measure.__name__: measure
    for measure in (enqueue_one_by_one, enqueue_in_flight, enqueue_many, drain, growth, pickup, idle)
}


def _producer(contestant: Contestant, options: Options) -> Producer:
    return producer_of(contestant.connect(options.place))


def _enqueued(contestant: Contestant, options: Options, enqueue: Callable[[Producer], float]) -> Figures:
    with server_cpu(options) as server_used:
        seconds = enqueue(_producer(contestant, options))
        return {"per_second": options.tasks / seconds, "tasks": options.tasks, **_per_task(options, server_used())}


def _per_task(options: Options, server_seconds: float) -> Figures:
    return {"server_us": 1e6 * server_seconds / options.tasks} if options.server else {}


@contextmanager
def server_cpu(options: Options) -> Iterator[Callable[[], float]]:
    """How much CPU time the server has used since the block began; 0 without a server."""
    if not options.server:
        yield lambda: 0.0
        return
    with Wire(options.server) as wire:
        before = wire.cpu_seconds()
        yield lambda: wire.cpu_seconds() - before


def _warm_up(contestant: Contestant, options: Options, starts: Starts, number: int, workers: WorkerProcesses) -> None:
    """One task through the whole way: imports, files and connections are in place on both sides."""
    _producer(contestant, options).at([0.0], [payload(number, WARM_UP_SIZE)])
    _wait_until(starts.any_task, workers)


def _wait_until(
    reached: Callable[[], bool], workers: WorkerProcesses, deadline: float = START_DEADLINE_SECONDS
) -> None:
    """Without a deadline it is the conductor who ends a measurement that takes too long."""
    ends = time.monotonic() + deadline
    while not reached():
        if time.monotonic() > ends:
            raise TimeoutError(f"not reached within {deadline:.0f} s")
        workers.check()
        time.sleep(POLL_SECONDS)
