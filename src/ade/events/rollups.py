"""Task counters and histograms, by queue and task name, computed from events.

Most events contain little about their task, so `EventCounter` remembers what earlier events contained.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ade.events.model import Event
from ade.locks.rules import DEADLOCK
from ade.tasks.changes import EVENT_OF
from ade.tasks.identifiers import is_own
from ade.tasks.lifecycle import Verb
from ade.tasks.model import Task

# Histograms with fixed buckets: small, mergeable without loss, and good enough for approximate percentiles.


# Upper bounds of the buckets, with one more bucket above the last. Do not change them: stored counts would be
# misread.
MS_BOUNDS = (
    *(1, 5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000, 60_000),
    *(300_000, 1_800_000, 3_600_000),
)
ATTEMPT_BOUNDS = (1, 2, 3, 5, 10, 20)


class Histogram(Struct, array_like=True):
    """The number of values in each bucket, and their sum."""

    counts: list[int]
    total: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def note(self, bounds: Sequence[int], value: int) -> None:
        """Record a value."""
        self.counts[bisect_left(bounds, value)] += 1
        self.total += value

    def add(self, other: "Histogram") -> None:
        for place, count in enumerate(other.counts):
            self.counts[place] += count
        self.total += other.total


def empty(bounds: Sequence[int]) -> Histogram:
    """Return a histogram without values for these bounds."""
    return Histogram([0] * (len(bounds) + 1))


def quantile(bounds: Sequence[int], histogram: Histogram, part: float) -> float | None:
    """Estimate a quantile, assuming an even distribution within each bucket. None if there are no values.

    Values above the last bound are reported as the last bound.
    """
    count = histogram.count
    if not count:
        return None
    wanted, below = part * count, 0
    for place, inside in enumerate(histogram.counts[: len(bounds)]):
        if inside and below + inside >= wanted:
            low = bounds[place - 1] if place else 0
            return low + (bounds[place] - low) * max(wanted - below, 0) / inside
        below += inside
    return float(bounds[-1])


# Task counters by queue and name: per minute, per hour, and in total.


Group = tuple[str, str]  # a queue and a task name
OTHER: Group = ("other", "other")  # counts groups beyond the limit
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
COUNTS = ("enqueued", "completed", "failed", "retried", "cancelled", "rejected")


class TaskCounters(Struct, array_like=True):
    """Counters of one group. `failed` excludes retries; `rejected` includes approvals that expired."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    rejected: int = 0
    wait: Histogram = msgspec.field(default_factory=lambda: empty(MS_BOUNDS))  # ms from due to claimed
    run: Histogram = msgspec.field(default_factory=lambda: empty(MS_BOUNDS))  # ms of a run, whatever its outcome
    attempts: Histogram = msgspec.field(default_factory=lambda: empty(ATTEMPT_BOUNDS))  # at completion or final failure

    def add(self, other: "TaskCounters") -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wait.add(other.wait)
        self.run.add(other.run)
        self.attempts.add(other.attempts)


class RollupEntry(Struct, frozen=True, array_like=True):
    """The stored counters of one group."""

    queue: str
    name: str
    figures: TaskCounters


class Rollup:
    """Counters by group, for up to `most` groups. All further groups share the group `OTHER`."""

    def __init__(self, most: int, entries: Iterable[RollupEntry] = ()) -> None:
        self._most = most
        self._groups: dict[Group, TaskCounters] = {(entry.queue, entry.name): entry.figures for entry in entries}

    def of(self, group: Group) -> TaskCounters:
        """Return the counters of a group, or those of `OTHER` if the limit is reached."""
        counters = self._groups.get(group)
        if counters is None:
            own = len(self._groups) - (OTHER in self._groups)
            key = group if own < self._most else OTHER
            counters = self._groups.setdefault(key, TaskCounters())
        return counters

    def add(self, other: "Rollup") -> None:
        for group, figures in other.groups.items():
            self.of(group).add(figures)

    @property
    def groups(self) -> Mapping[Group, TaskCounters]:
        return self._groups

    def entries(self) -> list[RollupEntry]:
        """Return the groups in order of arrival, which decides which groups are counted separately."""
        return [RollupEntry(queue, name, figures) for (queue, name), figures in self._groups.items()]

    def total(self, *, queue: str | None = None, name: str | None = None) -> TaskCounters:
        """Return the sum of all groups with this queue and this name."""
        found = TaskCounters()
        for group, figures in self._groups.items():
            if queue in (None, group[0]) and name in (None, group[1]):
                found.add(figures)
        return found


def minute_of(moment: int) -> int:
    """Return the first millisecond of the minute."""
    return moment - moment % MINUTE_MS


def hour_of(moment: int) -> int:
    """Return the first millisecond of the hour."""
    return moment - moment % HOUR_MS


MOST_REMEMBERED = 20_000  # tasks
MOST_GROUPS = 500  # per read of the log: the maximum of figures.groups
_SKEW_MS = 1_000  # tolerated clock skew; an earlier claim belongs to another run


class TrackedTask(Struct, gc=False):
    """State of an unfinished task: its group, when it became due, and when its run started."""

    group: Group
    due: int | None = None  # None: waiting for something else, or unknown
    began: int | None = None
    run_id: object = None  # of the run that started at `began`


class CounterDelta(Struct):
    """Counts of a batch of events."""

    minutes: dict[int, Rollup]  # by first millisecond
    deadlocks: int = 0
    webhook_failures: int = 0


Step = Callable[[Event, TrackedTask, TaskCounters], None]


def _created(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    figures.enqueued += 1


def _claimed(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    if task.due is not None and event.at - task.due >= -_SKEW_MS:
        figures.wait.note(MS_BOUNDS, max(event.at - task.due, 0))
    task.due, task.began, task.run_id = None, event.at, event.payload.get("run_id")


def _ran(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    run_id = event.payload.get("run_id", task.run_id)  # a cancellation event does not contain it
    if task.began is not None and run_id == task.run_id:
        figures.run.note(MS_BOUNDS, max(event.at - task.began, 0))
    task.began = None


def _ended(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    _ran(event, task, figures)
    attempt = event.payload.get("attempt")
    if isinstance(attempt, int):
        figures.attempts.note(ATTEMPT_BOUNDS, max(attempt, 0))


def _succeeded(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    figures.completed += 1
    _ended(event, task, figures)


def _failed(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    figures.failed += 1
    _ended(event, task, figures)


def _retried(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    figures.retried += 1
    _ran(event, task, figures)
    delay = event.payload.get("delay_ms")
    task.due = event.at + delay if isinstance(delay, int) else None


def _cancelled(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    figures.cancelled += 1
    _ran(event, task, figures)


def _rejected(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    figures.rejected += 1


def _in_line(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    task.due, task.began = event.at, None


def _rescheduled(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    start = event.payload.get("run_after")
    if task.due is not None and isinstance(start, int):
        task.due = max(start, event.at)


def _set_aside(event: Event, task: TrackedTask, figures: TaskCounters) -> None:
    task.due = task.began = None


_BY_VERB: Mapping[Verb, Step] = {
    Verb.CREATE: _created,
    Verb.CLAIM: _claimed,
    Verb.SUCCEED: _succeeded,
    Verb.FAIL: _failed,
    Verb.RETRY: _retried,
    Verb.CANCEL: _cancelled,
    Verb.REJECT: _rejected,
    Verb.EXPIRE: _rejected,
    Verb.START: _in_line,
    Verb.BREAK_GLASS: _in_line,
    Verb.RELEASE: _in_line,
    Verb.STALL: _in_line,
    Verb.RECALL: _in_line,
    Verb.RESCHEDULE: _rescheduled,
    Verb.REPLAY: _in_line,
    Verb.DEFER: _set_aside,
    Verb.HOLD: _set_aside,
    Verb.REVOKE: _set_aside,
}
STEPS: Mapping[str, Step] = {EVENT_OF[verb][0]: step for verb, step in _BY_VERB.items()}
(_CREATED,) = EVENT_OF[Verb.CREATE]
_OVER = frozenset(EVENT_OF[verb][0] for verb in (Verb.SUCCEED, Verb.CANCEL, Verb.REJECT, Verb.EXPIRE))
_FAILURES = frozenset(EVENT_OF[verb][0] for verb in (Verb.FAIL, Verb.RETRY))


class EventCounter:
    """Counts events. Tasks returned by `unknown` must be passed to `learn` before `count` sees the same events."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._tasks: dict[str, TrackedTask] = {}

    def unknown(self, events: Iterable[Event]) -> list[str]:
        """Return the IDs of tasks whose records must be loaded first."""
        created = {event.task_id for event in events if event.type == _CREATED}
        asked = {event.task_id for event in events if event.type in STEPS and event.task_id is not None}
        return sorted(task_id for task_id in asked - created if task_id not in self._tasks)

    def learn(self, task_ids: Sequence[str], tasks: Sequence[Task | None]) -> None:
        """Remember task records. A task that no longer exists is counted under `OTHER`."""
        for task_id, task in zip(task_ids, tasks, strict=True):
            self._tasks[task_id] = TrackedTask(OTHER) if task is None else _remembered(task)

    def count(self, events: Iterable[Event], counted: CounterDelta) -> None:
        """Add the counts of these events."""
        tasks, steps = self._tasks, STEPS
        begins, minute = -MINUTE_MS, Rollup(MOST_GROUPS)
        for event in events:
            kind, task_id = event.type, event.task_id
            step = steps.get(kind)
            if step is None or task_id is None:
                counted.deadlocks += kind == DEADLOCK
                continue
            if kind == _CREATED:
                task = tasks[task_id] = _from_created(event)
            else:
                task = tasks.get(task_id) or tasks.setdefault(task_id, TrackedTask(OTHER))
            if not 0 <= event.at - begins < MINUTE_MS:
                begins = minute_of(event.at)
                minute = counted.minutes.setdefault(begins, Rollup(MOST_GROUPS))
            step(event, task, minute.of(task.group))
            if kind in _OVER:
                del tasks[task_id]
            elif kind in _FAILURES and is_own(event):
                counted.webhook_failures += 1
        while len(tasks) > self._most:
            del tasks[next(iter(tasks))]

    def forget(self) -> None:
        """Clear the state after an error, so that events that are counted again do not see their own effects."""
        self._tasks.clear()


def _from_created(created: Event) -> TrackedTask:
    payload: Mapping[str, Any] = created.payload
    group = (payload.get("queue", OTHER[0]), payload.get("name", OTHER[1]))
    is_in_line = payload.get("status") == "pending" and not payload.get("waits_for")
    return TrackedTask(group, payload.get("run_after", created.at) if is_in_line else None)


def _remembered(task: Task) -> TrackedTask:
    """Build the state from the task record, which might be newer than the events being counted."""
    due = None if task.depends_on else max(task.run_after, task.created_at, task.approved_at or 0)
    return TrackedTask((task.queue, task.name), due, task.started_at, task.run_id)
