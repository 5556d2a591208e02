"""Claims: selects the tasks that a worker gets, inside a write transaction and with few large statements."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import apsw
import msgspec

from ade.common.gcra import RateState, available, take
from ade.stores.ports import ClaimRequest
from ade.stores.sqlite.codec import UNREADABLE, detail_of, packed, read_task, read_tasks, remains_of, unpacked
from ade.stores.sqlite.commits import CommitOperation
from ade.stores.sqlite.connection import run, value
from ade.stores.sqlite.writer import WriteOperation
from ade.tasks.decisions import fail_run
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Task, are_met
from ade.tasks.outcomes import Failed

MOST_PARKED = 10_000  # per claim, so that the transaction stays short
_definition = msgspec.json.Decoder(Definition)


class ClaimOperation(WriteOperation):
    """A claim by one worker. Its answer is the list of claimed tasks."""

    __slots__ = ("is_repeated", "now", "request", "steady")
    may_use_reserve = False

    def __init__(self, request: ClaimRequest, now: Callable[[], int], steady: Callable[[], int]) -> None:
        super().__init__()
        self.request = request
        self.is_repeated = request.may_be_repeated
        self.now = now
        self.steady = steady

    def run(self, connection: apsw.Connection) -> None:
        self.answer = self._claim(connection)
        self.is_repeated = True  # if it runs again, the outcome of this attempt is unknown

    def _claim(self, connection: apsw.Connection) -> list[Task]:
        if not self.request.run_ids:
            return []
        now = self.now()
        if self.is_repeated and (taken := _taken_before(connection, self.request)):
            return _read(connection, taken, now)
        is_due, lanes, limits = unpacked(value(connection, "claims.state", now=now))
        if is_due:
            run(connection, "claims.promote_due", now=now)
        if self.request.capabilities:
            lanes += unpacked(value(connection, "claims.capability_lanes"))
        chosen = _ClaimSelection(connection, self.request, self.steady()).choose(lanes, limits)
        if not chosen:
            return []
        _take(connection, self.request, chosen, now=now, lease_until=self.steady() + self.request.lease_ms)
        tasks = _read(connection, [candidate.seq for candidate in chosen], now)
        governed = [(task.id, task.run_id, task.digest) for task in tasks if task.digest is not None]
        if governed:
            run(connection, "claims.add_digests", rows=packed(governed))
        return tasks


class _Candidate(NamedTuple):
    """A claimable task. Tuple order sorts by priority, then by `seq` (age), which is unique."""

    priority: int
    seq: int
    key: str | None
    status: str
    worker_id: str | None
    queue: str
    name: str


@dataclass(slots=True)
class _Limits:
    """The limits of a task name: `room` is how many more can start now, `by_rate` how many the rate limit allows."""

    definition: Definition
    rate: RateState
    room: int
    by_rate: int


class _ClaimSelection:
    """Merges the lanes (queue, name) by priority and age, without the tasks that a limit holds back."""

    def __init__(self, connection: apsw.Connection, request: ClaimRequest, steady: int) -> None:
        self._connection = connection
        self._request = request
        self._steady = steady
        self._limits: dict[str, _Limits] = {}
        self._busy: Counter[tuple[str, str]] = Counter()
        self._known_keys: set[tuple[str, str]] = set()
        self._parked: list[int] = []

    def choose(self, known: list[list[str]], limited: list[tuple[str, int, int]]) -> list[_Candidate]:
        """Select candidates, given the lanes and limits that `claims.state` returned."""
        lanes = self._served(known)
        if not lanes:
            return []
        self._limits = self._read_limits(limited)
        wanted = len(self._request.run_ids)
        chunk = max(wanted // len(lanes) + 8, 16) if len(lanes) > 1 else wanted
        chosen: list[_Candidate] = []
        for candidate in heapq.merge(*(self._walk(chunk, *lane) for lane in lanes)):
            if self._may_start(candidate):
                chosen.append(candidate)
                if len(chosen) == wanted:
                    break
        self._remember(chosen)
        return chosen

    def _served(self, lanes: list[list[str]]) -> list[list[str]]:
        """Return the lanes whose name, queue, and required capabilities the worker serves."""
        names, queues, can = self._request.names, frozenset(self._request.queues), self._request.capabilities
        return [
            [queue, name, *needs]
            for queue, name, *needs in lanes
            if name in names and (not queues or queue in queues) and (not needs or are_met(needs[0], can))
        ]

    def _read_limits(self, limited: list[tuple[str, int, int]]) -> dict[str, _Limits]:
        limits = {}
        for text, full_at, running in limited:
            definition, rate = _definition.decode(text), RateState(full_at)
            unlimited = len(self._request.run_ids)
            room = unlimited if definition.concurrency is None else max(definition.concurrency - running, 0)
            by_rate = unlimited
            if definition.rate_count is not None and definition.rate_period_ms is not None:
                by_rate = available(
                    rate, count=definition.rate_count, period_ms=definition.rate_period_ms, now_ms=self._steady
                )
            limits[definition.name] = _Limits(definition, rate, min(room, by_rate), by_rate)
        return limits

    def _walk(self, chunk: int, queue: str, name: str, needs: str = "") -> Iterator[_Candidate]:
        """Iterate over a lane from its head, in chunks, as far as its limit allows."""
        priority, seq = -1, -1
        statement, more = ("claims.capability_lane_head", {"needs": needs}) if needs else ("claims.lane_head", {})
        while (limits := self._limits.get(name)) is None or limits.room > 0:
            rows = unpacked(
                value(
                    self._connection,
                    statement,
                    **more,
                    queue=queue,
                    name=name,
                    priority=priority,
                    seq=seq,
                    limit=chunk,
                )
            )
            for priority, seq, key, status, worker_id in rows:
                if limits is not None and (limits.room <= 0 or len(self._parked) >= MOST_PARKED):
                    return
                yield _Candidate(priority, seq, key, status, worker_id, queue, name)
            if len(rows) < chunk:
                return

    def _may_start(self, candidate: _Candidate) -> bool:
        limits = self._limits.get(candidate.name)
        if limits is None:
            return True
        if limits.room <= 0:
            return False
        per_key = limits.definition.concurrency_per_key
        if candidate.key is not None and per_key is not None:
            if self._running_of(candidate.name, candidate.key) >= per_key:
                self._parked.append(candidate.seq)
                return False
            self._busy[candidate.name, candidate.key] += 1
        limits.room -= 1
        return True

    def _running_of(self, name: str, key: str) -> int:
        if (name, key) not in self._known_keys:
            self._known_keys.add((name, key))
            rows = run(self._connection, "claims.count_running_keys", rows=packed([(name, key)]))
            self._busy[name, key] += sum(count for _, _, count in rows)
        return self._busy[name, key]

    def _remember(self, chosen: list[_Candidate]) -> None:
        """Park the tasks that wait for a concurrency key, and store how much of each rate limit is used."""
        if self._parked:
            run(self._connection, "claims.park", seqs=packed(self._parked))
        for name, count in Counter(candidate.name for candidate in chosen).items():
            limits = self._limits.get(name)
            if limits is None or limits.definition.rate_count is None or limits.definition.rate_period_ms is None:
                continue
            rate = take(
                limits.rate,
                count,
                count=limits.definition.rate_count,
                period_ms=limits.definition.rate_period_ms,
                now_ms=self._steady,
            )
            run(self._connection, "definitions.set_rate", name=name, full_at=rate.full_at)


def _taken_before(connection: apsw.Connection, request: ClaimRequest) -> list[int]:
    """Return the seqs of tasks that already run under the run IDs of this request, in the order of those IDs."""
    taken = dict(run(connection, "claims.find_by_run", run_ids=packed(request.run_ids)))
    return [taken[run_id] for run_id in request.run_ids if run_id in taken]


def _take(
    connection: apsw.Connection,
    request: ClaimRequest,
    chosen: list[_Candidate],
    *,
    now: int,
    lease_until: int,
) -> None:
    rows = packed(list(zip([candidate.seq for candidate in chosen], request.run_ids, strict=False)))
    run(connection, "claims.assign", rows=rows, worker_id=request.worker_id, lease_until=lease_until, now=now)
    run(connection, "claims.insert_events", rows=rows, now=now)
    left = Counter([(candidate.queue, candidate.name, candidate.status) for candidate in chosen])
    if any(status == Status.STALLED for _, _, status in left):
        stalled = [(candidate.seq, candidate.worker_id) for candidate in chosen if candidate.status == Status.STALLED]
        run(connection, "claims.insert_reclaim_events", rows=packed(stalled), now=now)
    moves = [(queue, name, status, -count) for (queue, name, status), count in left.items()]
    moves += [(queue, name, Status.RUNNING, count) for (queue, name, _), count in left.items()]
    run(connection, "queues.update_status_counts", rows=packed(moves))


def _read(connection: apsw.Connection, seqs: list[int], now: int) -> list[Task]:
    """Read the claimed records. An unreadable record is quarantined, and the others are returned."""
    try:
        tasks = read_tasks(value(connection, "tasks.get_by_seq", seqs=packed(seqs)))
    except UNREADABLE:
        tasks = []
    if len(tasks) == len(seqs):
        return tasks
    return _read_one_by_one(connection, seqs, now)


def _read_one_by_one(connection: apsw.Connection, seqs: list[int], now: int) -> list[Task]:
    rows = dict(run(connection, "tasks.get_rows", seqs=packed(seqs)))
    tasks = []
    for seq in seqs:
        try:
            tasks.append(read_task(rows[seq]))
        except (*UNREADABLE, KeyError) as error:
            _set_aside(connection, seq, f"{type(error).__name__}: {error}", now)
    return tasks


def _set_aside(connection: apsw.Connection, seq: int, why: str, now: int) -> None:
    """Fail a task with an unreadable record, and quarantine its bytes for inspection."""
    run(connection, "tasks.quarantine", seq=seq, now=now)
    remains = remains_of(connection, seq, f"{why[:150]}; its bytes are in quarantine")
    run(connection, "tasks.replace_detail", seq=seq, detail=packed(detail_of(remains)))
    assert remains.error is not None
    failure = fail_run(remains, Failed(remains.error), now=now, randomness=0.5)
    CommitOperation.run_group(connection, [CommitOperation([failure], True, lambda: now)])
