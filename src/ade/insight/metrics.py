"""Figures for Prometheus: counters from what was counted durably, so that every process tells the same, and gauges from
the store as it is now."""

import time
from collections.abc import Callable, Iterable, Mapping

from ade.core.approvals.opening import review_of
from ade.core.figures.exposition import Labels, Samples, chosen, written
from ade.core.figures.rollups import COUNTS, OTHER, Rollup
from ade.core.lifecycle import Status
from ade.core.locks.records import LockState
from ade.insight.figures.keeping import MOST_GROUPS_EVER, READER
from ade.insight.figures.shelves import Totals, load_totals
from ade.insight.findings import Lag
from ade.insight.overview import count_dead_letters
from ade.insight.workers import Liveness, view_workers
from ade.ports import LockQuery, Stores, Tally, TaskQuery
from ade.queue.turn import Turn
from ade.version import VERSION

FRESH_S = 1.0
_MOST_LAG = 5_000  # events of the log that are counted
_MOST_LOCKS = 10_000
_MOST_REVIEWS = 100  # the oldest, of which the oldest gate is looked for
_WAITING = frozenset({Status.PENDING, Status.STALLED})
_AT_WORKERS = _WAITING | {Status.RUNNING}
_ALIVE = frozenset({Liveness.WORKING, Liveness.DRAINING})


class Metrics:
    """One for each store that is open. Who asks again within a second is told the same."""

    def __init__(self, stores: Stores, lag: Lag, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores = stores
        self._lag = lag
        self._clock = clock
        self._known: Mapping[str, Samples] = {}
        self._until = float("-inf")
        self._asking = Turn()

    async def text(self, accept: str = "") -> tuple[str, str]:
        """(content type, body), in the format that the header `Accept` asks for."""
        content_type = chosen(accept)
        async with self._asking:
            if self._clock() >= self._until:
                self._known = await measure(self._stores, self._lag)
                self._until = self._clock() + FRESH_S
        return content_type, written(self._known, content_type)


async def measure(stores: Stores, lag: Lag) -> dict[str, Samples]:
    """Every metric by its name. A fixed number of reads, however much there is."""
    totals = (await load_totals(stores)).totals
    tallies = await stores.queues.tallies()
    return {
        **_counters(totals),
        **await _queues(stores, tallies),
        **await _people(stores, tallies),
        **await _locks(stores),
        **await _workers(stores),
        "ade_event_cursor_lag": await _lags(stores, lag, totals),
        "ade_build_info": {(VERSION,): 1},
    }


def _counters(totals: Totals) -> dict[str, Samples]:
    groups = Rollup(MOST_GROUPS_EVER, totals.entries).groups
    counted: dict[str, Samples] = {
        f"ade_tasks_{name}_total": {group: getattr(figures, name) for group, figures in groups.items()}
        for name in COUNTS
    }
    return counted | {
        "ade_task_wait_ms": {group: figures.wait for group, figures in groups.items()},
        "ade_task_duration_ms": {group: figures.run for group, figures in groups.items()},
        "ade_task_attempts": {group: figures.attempts for group, figures in groups.items()},
        "ade_lock_deadlocks_total": {(): totals.deadlocks},
        "ade_webhook_failures_total": {(): totals.webhook_failures},
    }


async def _queues(stores: Stores, tallies: list[Tally]) -> dict[str, Samples]:
    now = stores.clock.now()
    oldest = await stores.queues.oldest_ready()
    at_workers = [tally for tally in tallies if tally.status in _AT_WORKERS]
    by_queue = _summed(((tally.queue,), tally.count) for tally in at_workers)
    return {
        "ade_queue_pending_total": _by_group(tally for tally in at_workers if tally.status in _WAITING),
        "ade_tasks_running": _by_group(tally for tally in at_workers if tally.status is Status.RUNNING),
        "ade_queue_stream_length": by_queue,
        "ade_queue_delayed_total": {(): await stores.queues.count_delayed()},
        "ade_queue_oldest_ready_age_ms": _bounded({(q,): max(now - since, 0) for q, since in sorted(oldest.items())}),
        "ade_dead_letters": {(): await count_dead_letters(stores, tallies)},
    }


def _by_group(tallies: Iterable[Tally]) -> dict[Labels, float]:
    return _summed(((tally.queue, tally.name), tally.count) for tally in tallies)


def _summed(pairs: Iterable[tuple[Labels, int]]) -> dict[Labels, float]:
    """So many labels at most; what is beyond is added up as one more."""
    found: dict[Labels, float] = {}
    for labels, count in pairs:
        key = labels if labels in found or len(found) < MOST_GROUPS_EVER else OTHER[: len(labels)]
        found[key] = found.get(key, 0) + count
    return found


def _bounded(ages: dict[Labels, float]) -> dict[Labels, float]:
    """The highest, if there are very many."""
    highest = sorted(ages, key=lambda labels: -ages[labels])[:MOST_GROUPS_EVER]
    return {labels: ages[labels] for labels in sorted(highest)}


async def _people(stores: Stores, tallies: list[Tally]) -> dict[str, Samples]:
    waiting = sum(tally.count for tally in tallies if tally.status is Status.REVIEWING)
    oldest = 0
    if waiting:
        now = stores.clock.now()
        query = TaskQuery(statuses=frozenset({Status.REVIEWING}), oldest_first=True, limit=_MOST_REVIEWS)
        gates = [review_of(task).gate for task in (await stores.tasks.find(query)).tasks]
        oldest = max((now - gate.opened_at for gate in gates if gate is not None), default=0)
    return {"ade_approvals_waiting": {(): waiting}, "ade_approvals_oldest_age_ms": {(): max(oldest, 0)}}


async def _locks(stores: Stores) -> dict[str, Samples]:
    held = waiting = 0
    for request in await stores.locks.find(LockQuery(limit=_MOST_LOCKS)):
        held += len(request.items) if request.state is LockState.GRANTED else 0
        waiting += request.state is LockState.WAITING
    return {"ade_locks_held": {(): held}, "ade_locks_waiting": {(): waiting}}


async def _workers(stores: Stores) -> dict[str, Samples]:
    alive = [view.liveness in _ALIVE for view in await view_workers(stores)]
    return {
        "ade_workers_active_total": {(): alive.count(True)},
        "ade_workers_dead_total": {(): alive.count(False)},
    }


async def _lags(stores: Stores, lag: Lag, totals: Totals) -> dict[Labels, float]:
    """The counting tells its cursor only now and then, and knows better itself."""
    reached = dict(await stores.events.cursors())
    if totals.seq:
        reached[READER] = max(totals.seq, reached.get(READER, 0))
    return {(reader,): await lag(stores.events, seq, _MOST_LAG) for reader, seq in sorted(reached.items())}
