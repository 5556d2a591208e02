"""Statistics of the whole system: queue depths, ages, workers, throughput, and dead letters."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ade.stores.ports import StatusCount, Stores, TaskQuery
from ade.tasks.lifecycle import FINAL, Status
from ade.worker.views import WorkerView, view_workers, without_worker

_WINDOW_MS = 60_000
_SAMPLE = 5_000  # maximum number of events for the throughput estimate
_MOST_DEAD_LETTERS = 1_000


class Depth(Struct, frozen=True, kw_only=True):
    """How many tasks of one queue or one name there are, by status."""

    name: str
    by_status: Mapping[Status, int]

    @property
    def unfinished(self) -> int:
        return sum(count for status, count in self.by_status.items() if status not in FINAL)


class QueueView(Depth, frozen=True, kw_only=True):
    """A queue, its depth by status, its limit, and its oldest ready task."""

    paused: bool = False
    max_depth: int | None = None
    oldest_ready_ms: int | None = None  # for how long the oldest ready task has been due


class Throughput(Struct, frozen=True, kw_only=True):
    """Tasks per second, over `over_ms` up to now; shorter than a minute when very much is going on."""

    over_ms: int
    created_per_s: float
    completed_per_s: float
    failed_per_s: float
    retried_per_s: float


class Overview(Struct, frozen=True, kw_only=True):
    """Depths, throughput, workers, and dead letters of a store at one time."""

    at: int
    queues: list[QueueView]
    names: list[Depth]
    workers: list[WorkerView]
    throughput: Throughput
    dead_letters: int  # counted up to `dead_letters_limit`
    dead_letters_limit: int = _MOST_DEAD_LETTERS
    without_worker: Mapping[str, int] = {}  # waiting tasks by name that no live worker claims

    def total(self, status: Status) -> int:
        return sum(queue.by_status.get(status, 0) for queue in self.queues)


async def overview(stores: Stores) -> Overview:
    """Read the current statistics from the store."""
    tallies, workers = await stores.queues.tallies(), await view_workers(stores)
    return Overview(
        at=stores.clock.now(),
        queues=await view_queues(stores, tallies),
        names=_depths((tally.name, tally) for tally in tallies),
        workers=workers,
        throughput=await throughput(stores),
        dead_letters=await count_dead_letters(stores, tallies),
        without_worker=without_worker(workers, tallies),
    )


async def view_queues(stores: Stores, tallies: list[StatusCount] | None = None) -> list[QueueView]:
    """Return all queues by name. Pass `tallies` if they were already read."""
    now = stores.clock.now()
    tallies = await stores.queues.tallies() if tallies is None else tallies
    oldest = await stores.queues.oldest_ready()
    known = {queue.name: queue for queue in await stores.queues.list_queues()}
    depths = {depth.name: depth.by_status for depth in _depths((tally.queue, tally) for tally in tallies)}
    return [
        QueueView(
            name=name,
            by_status=depths.get(name, {}),
            paused=name in known and known[name].paused,
            max_depth=known[name].max_depth if name in known else None,
            oldest_ready_ms=max(now - oldest[name], 0) if name in oldest else None,
        )
        for name in sorted(known.keys() | depths.keys())
    ]


def _depths(tallies: Iterable[tuple[str, StatusCount]]) -> list[Depth]:
    counted: dict[str, dict[Status, int]] = {}
    for name, tally in tallies:
        by_status = counted.setdefault(name, {})
        if tally.count:
            by_status[tally.status] = by_status.get(tally.status, 0) + tally.count
    return [Depth(name=name, by_status=by_status) for name, by_status in sorted(counted.items())]


async def throughput(stores: Stores, window_ms: int = _WINDOW_MS) -> Throughput:
    """Estimate the throughput from the newest events."""
    now = stores.clock.now()
    events = await stores.events.newest(_SAMPLE)
    recent = [event for event in events if now - window_ms < event.at <= now]
    is_cut = len(recent) >= _SAMPLE  # the sample does not cover the window
    over_ms = max(now - recent[0].at, 1) if is_cut else window_ms
    counts: dict[str, int] = {}
    for event in recent:
        counts[event.type] = counts.get(event.type, 0) + 1

    def rate(event_type: str) -> float:
        return round(counts.get(event_type, 0) * 1000 / over_ms, 3)

    return Throughput(
        over_ms=over_ms,
        created_per_s=rate("task.created"),
        completed_per_s=rate("task.succeeded"),
        failed_per_s=rate("task.failed"),
        retried_per_s=rate("task.retry_scheduled"),
    )


async def count_dead_letters(stores: Stores, tallies: list[StatusCount]) -> int:
    """Count the dead letters, up to the limit of the overview."""
    if not any(tally.status is Status.FAILED and tally.count for tally in tallies):
        return 0
    query = TaskQuery(statuses=frozenset({Status.FAILED}), discarded=False, limit=_MOST_DEAD_LETTERS)
    return len((await stores.tasks.find(query)).tasks)
