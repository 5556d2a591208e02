"""From events to figures. Events say little of their task, so what earlier ones told of it is remembered a while."""

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

# Histograms with fixed buckets: small, added up without loss, and good for percentiles that are about right.


# The upper ends of the buckets; above the last there is one more. They must stay as they are: counts kept under other
# bounds would be read wrongly.
MS_BOUNDS = (
    *(1, 5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000, 60_000),
    *(300_000, 1_800_000, 3_600_000),
)
ATTEMPT_BOUNDS = (1, 2, 3, 5, 10, 20)


class Histogram(Struct, array_like=True):
    """How many values fell into each bucket, and what they come to together."""

    counts: list[int]
    total: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def note(self, bounds: Sequence[int], value: int) -> None:
        self.counts[bisect_left(bounds, value)] += 1
        self.total += value

    def add(self, other: "Histogram") -> None:
        for place, count in enumerate(other.counts):
            self.counts[place] += count
        self.total += other.total


def empty(bounds: Sequence[int]) -> Histogram:
    return Histogram([0] * (len(bounds) + 1))


def quantile(bounds: Sequence[int], histogram: Histogram, part: float) -> float | None:
    """The value that this part of all values does not exceed, as if they lay evenly in each bucket; None without any.

    Above the last bound nothing is known but that, so it is the answer.
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


# What is counted of tasks, by queue and name, in a minute, an hour or since ever.


Group = tuple[str, str]  # a queue and the name of a task
OTHER: Group = ("other", "other")  # where those are counted that there was no place for
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
COUNTS = ("enqueued", "completed", "failed", "retried", "cancelled", "rejected")


class TaskCounters(Struct, array_like=True):
    """What happened to the tasks of one group. `failed` is for good; `rejected` by people, or because none answered."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    rejected: int = 0
    wait: Histogram = msgspec.field(default_factory=lambda: empty(MS_BOUNDS))  # ms from being due to a claim
    run: Histogram = msgspec.field(default_factory=lambda: empty(MS_BOUNDS))  # ms of a run, however it ended
    attempts: Histogram = msgspec.field(default_factory=lambda: empty(ATTEMPT_BOUNDS))  # when it completed or failed

    def add(self, other: "TaskCounters") -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wait.add(other.wait)
        self.run.add(other.run)
        self.attempts.add(other.attempts)


class RollupEntry(Struct, frozen=True, array_like=True):
    """The figures of a group as they are kept."""

    queue: str
    name: str
    figures: TaskCounters


class Rollup:
    """Figures by group. There are `most` groups at most, and all others together."""

    def __init__(self, most: int, entries: Iterable[RollupEntry] = ()) -> None:
        self._most = most
        self._groups: dict[Group, TaskCounters] = {(entry.queue, entry.name): entry.figures for entry in entries}

    def of(self, group: Group) -> TaskCounters:
        """Where this group is counted: under its own name if it has a place or gets one."""
        known = self._groups.get(group)
        if known is None:
            own = len(self._groups) - (OTHER in self._groups)
            key = group if own < self._most else OTHER
            known = self._groups.setdefault(key, TaskCounters())
        return known

    def add(self, other: "Rollup") -> None:
        for group, figures in other.groups.items():
            self.of(group).add(figures)

    @property
    def groups(self) -> Mapping[Group, TaskCounters]:
        return self._groups

    def entries(self) -> list[RollupEntry]:
        """In the order in which they came, which decides who has a place."""
        return [RollupEntry(queue, name, figures) for (queue, name), figures in self._groups.items()]

    def total(self, *, queue: str | None = None, name: str | None = None) -> TaskCounters:
        """All groups of this queue and this name together."""
        found = TaskCounters()
        for group, figures in self._groups.items():
            if queue in (None, group[0]) and name in (None, group[1]):
                found.add(figures)
        return found


def minute_of(moment: int) -> int:
    return moment - moment % MINUTE_MS


def hour_of(moment: int) -> int:
    return moment - moment % HOUR_MS


MOST_REMEMBERED = 20_000  # tasks
MOST_GROUPS = 500  # in one look at the log: as many as may be kept apart (figures.groups)
_SKEW_MS = 1_000  # clocks of machines differ so much; what lies further back was told of another run


class TrackedTask(Struct, gc=False):
    """What is known of a task that is not over: whose it is, since when it may run, since when it runs."""

    group: Group
    due: int | None = None  # None: it waits for something else, or nobody knows
    began: int | None = None
    run_id: object = None  # of the run that began then


class CounterDelta(Struct):
    """What some events come to."""

    minutes: dict[int, Rollup]  # by their first millisecond
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
    run_id = event.payload.get("run_id", task.run_id)  # a cancellation does not name it
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
    """`unknown` says which tasks must be looked up before `count` is called for the same events."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._tasks: dict[str, TrackedTask] = {}

    def unknown(self, events: Iterable[Event]) -> list[str]:
        told = {event.task_id for event in events if event.type == _CREATED}
        asked = {event.task_id for event in events if event.type in STEPS and event.task_id is not None}
        return sorted(task_id for task_id in asked - told if task_id not in self._tasks)

    def learn(self, task_ids: Sequence[str], tasks: Sequence[Task | None]) -> None:
        """What the records say; a task that is gone is counted under `other`."""
        for task_id, task in zip(task_ids, tasks, strict=True):
            self._tasks[task_id] = TrackedTask(OTHER) if task is None else _remembered(task)

    def count(self, events: Iterable[Event], counted: CounterDelta) -> None:
        """Add what these events come to."""
        tasks, steps = self._tasks, STEPS
        begins, minute = -MINUTE_MS, Rollup(MOST_GROUPS)
        for event in events:
            kind, task_id = event.type, event.task_id
            step = steps.get(kind)
            if step is None or task_id is None:
                counted.deadlocks += kind == DEADLOCK
                continue
            if kind == _CREATED:
                task = tasks[task_id] = _as_told(event)
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
        """After trouble: events that are counted again must not meet what they have left behind the first time."""
        self._tasks.clear()


def _as_told(created: Event) -> TrackedTask:
    told: Mapping[str, Any] = created.payload
    group = (told.get("queue", OTHER[0]), told.get("name", OTHER[1]))
    is_in_line = told.get("status") == "pending" and not told.get("waits_for")
    return TrackedTask(group, told.get("run_after", created.at) if is_in_line else None)


def _remembered(task: Task) -> TrackedTask:
    """From its record, which may be newer than the events that are being counted."""
    due = None if task.depends_on else max(task.run_after, task.created_at, task.approved_at or 0)
    return TrackedTask((task.queue, task.name), due, task.started_at, task.run_id)
