"""From events to figures. Events say little of their task, so what earlier ones told of it is remembered a while."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ade.core.events import EVENT_OF, Event
from ade.core.figures.histograms import ATTEMPT_BOUNDS, MS_BOUNDS
from ade.core.figures.rollups import MINUTE_MS, OTHER, Figures, Group, Rollup, minute_of
from ade.core.lifecycle import Verb
from ade.core.locks.book import DEADLOCK
from ade.core.records import Task
from ade.core.webhooks.names import is_own

MOST_REMEMBERED = 20_000  # tasks
MOST_GROUPS = 500  # in one look at the log: as many as may be kept apart (figures.groups)
_SKEW_MS = 1_000  # clocks of machines differ so much; what lies further back was told of another run


class Remembered(Struct, gc=False):
    """What is known of a task that is not over: whose it is, since when it may run, since when it runs."""

    group: Group
    due: int | None = None  # None: it waits for something else, or nobody knows
    began: int | None = None
    run_id: object = None  # of the run that began then


class Counted(Struct):
    """What some events come to."""

    minutes: dict[int, Rollup]  # by their first millisecond
    deadlocks: int = 0
    webhook_failures: int = 0


Step = Callable[[Event, Remembered, Figures], None]


def _created(event: Event, task: Remembered, figures: Figures) -> None:
    figures.enqueued += 1


def _claimed(event: Event, task: Remembered, figures: Figures) -> None:
    if task.due is not None and event.at - task.due >= -_SKEW_MS:
        figures.wait.note(MS_BOUNDS, max(event.at - task.due, 0))
    task.due, task.began, task.run_id = None, event.at, event.payload.get("run_id")


def _ran(event: Event, task: Remembered, figures: Figures) -> None:
    run_id = event.payload.get("run_id", task.run_id)  # a cancellation does not name it
    if task.began is not None and run_id == task.run_id:
        figures.run.note(MS_BOUNDS, max(event.at - task.began, 0))
    task.began = None


def _ended(event: Event, task: Remembered, figures: Figures) -> None:
    _ran(event, task, figures)
    attempt = event.payload.get("attempt")
    if isinstance(attempt, int):
        figures.attempts.note(ATTEMPT_BOUNDS, max(attempt, 0))


def _succeeded(event: Event, task: Remembered, figures: Figures) -> None:
    figures.completed += 1
    _ended(event, task, figures)


def _failed(event: Event, task: Remembered, figures: Figures) -> None:
    figures.failed += 1
    _ended(event, task, figures)


def _retried(event: Event, task: Remembered, figures: Figures) -> None:
    figures.retried += 1
    _ran(event, task, figures)
    delay = event.payload.get("delay_ms")
    task.due = event.at + delay if isinstance(delay, int) else None


def _cancelled(event: Event, task: Remembered, figures: Figures) -> None:
    figures.cancelled += 1
    _ran(event, task, figures)


def _rejected(event: Event, task: Remembered, figures: Figures) -> None:
    figures.rejected += 1


def _in_line(event: Event, task: Remembered, figures: Figures) -> None:
    task.due, task.began = event.at, None


def _set_aside(event: Event, task: Remembered, figures: Figures) -> None:
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


class Counting:
    """`unknown` says which tasks must be looked up before `count` is called for the same events."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._tasks: dict[str, Remembered] = {}

    def unknown(self, events: Iterable[Event]) -> list[str]:
        told = {event.task_id for event in events if event.type == _CREATED}
        asked = {event.task_id for event in events if event.type in STEPS and event.task_id is not None}
        return sorted(task_id for task_id in asked - told if task_id not in self._tasks)

    def learn(self, task_ids: Sequence[str], tasks: Sequence[Task | None]) -> None:
        """What the records say; a task that is gone is counted under `other`."""
        for task_id, task in zip(task_ids, tasks, strict=True):
            self._tasks[task_id] = Remembered(OTHER) if task is None else _remembered(task)

    def count(self, events: Iterable[Event], counted: Counted) -> None:
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
                task = tasks.get(task_id) or tasks.setdefault(task_id, Remembered(OTHER))
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


def _as_told(created: Event) -> Remembered:
    told: Mapping[str, Any] = created.payload
    group = (told.get("queue", OTHER[0]), told.get("name", OTHER[1]))
    is_in_line = told.get("status") == "pending" and not told.get("waits_for")
    return Remembered(group, told.get("run_after", created.at) if is_in_line else None)


def _remembered(task: Task) -> Remembered:
    """From its record, which may be newer than the events that are being counted."""
    due = None if task.depends_on else max(task.run_after, task.created_at, task.approved_at or 0)
    return Remembered((task.queue, task.name), due, task.started_at, task.run_id)
