"""Prometheus metrics and time series.

Counters come from the durably stored totals, so that every process reports the same values. Gauges come from the
current state of the store.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from ade import VERSION
from ade.accounts.tokens import list_tokens
from ade.approvals.review_requests import review_of
from ade.errors import InvalidFilter
from ade.events.alerts import expires_soon
from ade.events.metrics_collector import HOURS, MINUTES, MOST_GROUPS_EVER, READER, MetricTotals, load, load_totals
from ade.events.prometheus import Labels, Samples, chosen, written
from ade.events.rollups import (
    COUNTS,
    HOUR_MS,
    MINUTE_MS,
    MS_BOUNDS,
    OTHER,
    Rollup,
    TaskCounters,
    quantile,
)
from ade.locks.model import LockState
from ade.server.health import Lag
from ade.stores.ports import StatusCount, Stores, TaskQuery
from ade.stores.resource_ports import LockQuery
from ade.stores.wakeups import SingleFlight
from ade.tasks.lifecycle import Status
from ade.tasks.overview import count_dead_letters
from ade.worker.views import WorkersLiveness, of_other_versions, queued_by_agent, view_workers, without_worker

FRESH_S = 1.0
_MOST_LAG = 5_000  # events counted per reader
_MOST_LOCKS = 10_000
_MOST_REVIEWS = 100  # the oldest tasks, searched for the oldest approval gate
_WAITING = frozenset({Status.PENDING, Status.STALLED})
_AT_WORKERS = _WAITING | {Status.RUNNING}
_ALIVE = frozenset({WorkersLiveness.WORKING, WorkersLiveness.DRAINING})


class Metrics:
    """The metrics of one open store, cached for one second, and those of the requests to this server."""

    def __init__(
        self,
        stores: Stores,
        lag: Lag,
        requests: Callable[[], Mapping[str, Samples]] = dict,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._lag = lag
        self._requests = requests
        self._clock = clock
        self._known: Mapping[str, Samples] = {}
        self._until = float("-inf")
        self._asking = SingleFlight()

    async def text(self, accept: str = "") -> tuple[str, str]:
        """Return (content type, body) in the format that the `Accept` header requests."""
        content_type = chosen(accept)
        async with self._asking:
            if self._clock() >= self._until:
                self._known = await measure(self._stores, self._lag)
                self._until = self._clock() + FRESH_S
        return content_type, written({**self._known, **self._requests()}, content_type)


async def measure(stores: Stores, lag: Lag) -> dict[str, Samples]:
    """Return every metric by name. The number of reads is fixed, whatever the size of the store."""
    totals = (await load_totals(stores)).totals
    tallies = await stores.queues.tallies()
    return {
        **_counters(totals),
        **await _queues(stores, tallies),
        **await _people(stores, tallies),
        **await _locks(stores),
        **await _workers(stores, tallies),
        **await _tokens(stores),
        "ade_event_cursor_lag": await _lags(stores, lag, totals),
        "ade_build_info": {(VERSION,): 1},
    }


def _counters(totals: MetricTotals) -> dict[str, Samples]:
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


async def _queues(stores: Stores, tallies: list[StatusCount]) -> dict[str, Samples]:
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


def _by_group(tallies: Iterable[StatusCount]) -> dict[Labels, float]:
    return _summed(((tally.queue, tally.name), tally.count) for tally in tallies)


def _summed(pairs: Iterable[tuple[Labels, int]]) -> dict[Labels, float]:
    """Sum by labels. Beyond the maximum number of label sets, everything is counted as `other`."""
    found: dict[Labels, float] = {}
    for labels, count in pairs:
        key = labels if labels in found or len(found) < MOST_GROUPS_EVER else OTHER[: len(labels)]
        found[key] = found.get(key, 0) + count
    return found


def _bounded(ages: dict[Labels, float]) -> dict[Labels, float]:
    """Return the highest values, up to the maximum number of label sets."""
    highest = sorted(ages, key=lambda labels: -ages[labels])[:MOST_GROUPS_EVER]
    return {labels: ages[labels] for labels in sorted(highest)}


async def _people(stores: Stores, tallies: list[StatusCount]) -> dict[str, Samples]:
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


async def _workers(stores: Stores, tallies: list[StatusCount]) -> dict[str, Samples]:
    seen = await view_workers(stores)
    workers = [view for view in seen if not view.only_delivers]
    alive = [view.liveness in _ALIVE for view in workers]
    queued, unclaimed = queued_by_agent(workers, tallies), without_worker(seen, tallies)
    return {
        "ade_tasks_without_worker": _bounded({(name,): float(count) for name, count in unclaimed.items()}),
        "ade_workers_other_version_total": {(): len(of_other_versions(workers, VERSION))},
        "ade_agent_queued_tasks": _bounded({(agent,): float(count) for agent, count in queued.items()}),
        "ade_workers_active_total": {(): alive.count(True)},
        "ade_workers_dead_total": {(): alive.count(False)},
    }


async def _tokens(stores: Stores) -> dict[str, Samples]:
    now = stores.clock.now()
    tokens = [token for token in await list_tokens(stores) if token.is_good(now)]
    remaining = [(token.expires_at - now) / 1000 for token in tokens]
    return {
        "ade_tokens_expiring_total": {(): sum(expires_soon(token, now) for token in tokens)},
        "ade_tokens_next_expiry_s": {(): min(remaining)} if remaining else {},
    }


async def _lags(stores: Stores, lag: Lag, totals: MetricTotals) -> dict[Labels, float]:
    """Return the lag of every reader. The collector moves its cursor rarely, so its totals are more recent."""
    reached = dict(await stores.events.cursors())
    if totals.seq:
        reached[READER] = max(totals.seq, reached.get(READER, 0))
    return {(reader,): await lag(stores.events, seq, _MOST_LAG) for reader, seq in sorted(reached.items())}


# Time series for charts.


MOST_POINTS = 1_500
_MOST_MINUTES = 3 * 24 * 60  # maximum documents read for one series
_LAST_MS = 253_402_300_800_000  # end of the year 9999, the latest representable timestamp
_ALL = 1_000  # groups: the maximum that is stored


class SeriesPoint(Struct, frozen=True, kw_only=True):
    """One step, from `at` on. Percentiles are estimates, and None where there was nothing to measure."""

    at: int
    enqueued: int
    completed: int
    failed: int
    retried: int
    cancelled: int
    rejected: int
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    run_p50_ms: float | None
    run_p95_ms: float | None


class Series(Struct, frozen=True, kw_only=True):
    """`since` and `until` are as asked, but on whole steps. What is too old to be known counts as nothing."""

    since: int
    until: int
    step_s: int
    points: list[SeriesPoint]


async def series(
    stores: Stores, *, since: int, until: int, step_s: int, queue: str | None = None, name: str | None = None
) -> Series:
    """Return a time series, optionally of one queue, one task name, or both. Raises InvalidFilter for invalid steps."""
    step = step_s * 1000
    first, last = check(since, until, step_s)
    found = await _rollups(stores, first, last, step)
    steps: dict[int, TaskCounters] = {}
    for moment, rollup in found.items():
        at = moment - (moment - first) % step
        steps.setdefault(at, TaskCounters()).add(rollup.total(queue=queue, name=name))
    points = [_point(at, steps.get(at) or TaskCounters()) for at in range(first, last, step)]
    return Series(since=first, until=last, step_s=step_s, points=points)


def check(since: int, until: int, step_s: int) -> tuple[int, int]:
    """Return the time range rounded to whole steps. Raises InvalidFilter."""
    step = step_s * 1000
    if step <= 0 or step % MINUTE_MS:
        raise InvalidFilter("a step must be a whole number of minutes: 60 seconds or a multiple")
    if not 0 <= since < until:
        raise InvalidFilter("a series must end after it starts: `since` must be before `until`")
    first, last = since - since % step, until + -until % step
    if last >= _LAST_MS:
        raise InvalidFilter("a series must end before the year 10000; use an earlier `until`")
    if (last - first) // step > MOST_POINTS:
        raise InvalidFilter(f"a series has at most {MOST_POINTS} steps; use longer steps or a shorter period")
    if step % HOUR_MS and (last - first) // MINUTE_MS > _MOST_MINUTES:
        raise InvalidFilter("over more than 3 days, a step must be a whole number of hours: 3600 seconds or a multiple")
    return first, last


async def _rollups(stores: Stores, first: int, last: int, step: int) -> dict[int, Rollup]:
    """Load hours where they are precise enough and exist, otherwise minutes."""
    last = min(last, stores.clock.now() + HOUR_MS)  # there is no later data
    if step % HOUR_MS:
        return await load(stores, MINUTES, range(first, last, MINUTE_MS), _ALL)
    rolled = (await load_totals(stores)).totals.rolled
    newest = max(rolled, first)
    hours = await load(stores, HOURS, range(first, min(rolled, last), HOUR_MS), _ALL)
    return hours | await load(stores, MINUTES, range(newest, last, MINUTE_MS)[-_MOST_MINUTES:], _ALL)


def _point(at: int, figures: TaskCounters) -> SeriesPoint:
    wait, run = figures.wait, figures.run
    return SeriesPoint(
        at=at,
        **{name: getattr(figures, name) for name in COUNTS},
        wait_p50_ms=_shown(quantile(MS_BOUNDS, wait, 0.5)),
        wait_p95_ms=_shown(quantile(MS_BOUNDS, wait, 0.95)),
        run_p50_ms=_shown(quantile(MS_BOUNDS, run, 0.5)),
        run_p95_ms=_shown(quantile(MS_BOUNDS, run, 0.95)),
    )


def _shown(estimate: float | None) -> float | None:
    """Round an estimate; more digits would suggest false precision."""
    return None if estimate is None else round(estimate, 1)
