"""From events to figures: however the log is cut into pages, the same is counted."""

from hypothesis import given
from hypothesis import strategies as st

from ade import Status, Task
from ade.events.rollups import OTHER, CounterDelta, EventCounter, Rollup, TaskCounters
from ade.locks.rules import DEADLOCK
from tests.domain import Event

ENDS = ("task.succeeded", "task.failed", "task.cancelled", "task.retry_scheduled", "task.released", "task.stalled")


def life(number: int, steps: list[tuple[str, int]]) -> list[Event]:
    """A task's events: it is created, and each step is a claim and an end of that run, so many ms later."""
    task_id, at = f"t{number}", 1_000_000 * (number + 1)
    events = [_event("task.created", at, task_id, queue="q", name=f"n{number % 2}", status="pending")]
    for attempt, (end, took) in enumerate(steps, 1):
        run_id = f"{task_id}.{attempt}"
        events.append(_event("task.claimed", at + took, task_id, attempt=attempt, run_id=run_id, worker="w"))
        at += 2 * took
        events.append(_event(end, at, task_id, attempt=attempt, run_id=run_id, delay_ms=0))
        if end in ("task.succeeded", "task.failed", "task.cancelled"):
            break
    return events


def _event(kind: str, at: int, task_id: str, **payload: object) -> Event:
    return Event(type=kind, at=at, task_id=task_id, payload=payload)


STEPS = st.lists(st.tuples(st.sampled_from(ENDS), st.integers(0, 100_000)), max_size=4)
LOGS = st.lists(STEPS, max_size=6).map(
    lambda lives: sorted((event for n, steps in enumerate(lives) for event in life(n, steps)), key=lambda e: e.at)
)


def count(counting: EventCounter, events: list[Event]) -> CounterDelta:
    counted = CounterDelta({})
    counting.count(events, counted)
    return counted


def total(counted: list[CounterDelta]) -> Rollup:
    made = Rollup(100)
    for each in counted:
        for minute in each.minutes.values():
            made.add(minute)
    return made


@given(LOGS, st.integers(1, 7))
def test_pages_make_no_difference(log: list[Event], page: int) -> None:
    paged = EventCounter()
    pages = [log[first : first + page] for first in range(0, len(log), page)]
    assert all(not paged.unknown(each) for each in pages[:1])
    counted = CounterDelta({})
    for each in pages:
        paged.count(each, counted)
    assert total([counted]).groups == total([count(EventCounter(), log)]).groups


@given(LOGS)
def test_every_run_has_its_wait_and_its_duration(log: list[Event]) -> None:
    figures = total([count(EventCounter(), log)]).total()
    claims = sum(event.type == "task.claimed" for event in log)
    measured = [event for event in log if event.type in ENDS[:4]]  # what was handed back or lost has no duration
    assert figures.wait.count == claims
    assert figures.run.count == len(measured)
    assert figures.enqueued == sum(event.type == "task.created" for event in log)
    assert figures.attempts.count == figures.completed + figures.failed


@given(LOGS, st.integers(0, 3))
def test_counts_are_right_however_little_is_remembered(log: list[Event], most: int) -> None:
    """Then groups come from the records, and measures may be missing, but no count is."""
    counting, counted = EventCounter(most), []
    for event in log:
        unknown = counting.unknown([event])
        records = [Task(id=each, name=f"n{int(each[1:]) % 2}", queue="q", status=Status.RUNNING) for each in unknown]
        counting.learn(unknown, records)
        counted.append(count(counting, [event]))
    found, expected = total(counted), total([count(EventCounter(), log)])
    assert found.groups.keys() == expected.groups.keys()
    for group, figures in expected.groups.items():
        assert _counts(found.of(group)) == _counts(figures)


def _counts(figures: TaskCounters) -> list[int]:
    return [figures.enqueued, figures.completed, figures.failed, figures.retried, figures.cancelled]


def test_a_task_that_is_gone_counts_under_other() -> None:
    counting = EventCounter()
    ended = _event("task.succeeded", 5, "gone", attempt=1, run_id="r")
    assert counting.unknown([ended]) == ["gone"]
    counting.learn(["gone"], [None])
    assert count(counting, [ended]).minutes[0].groups[OTHER].completed == 1


def test_as_many_groups_are_counted_apart_as_may_be_kept() -> None:
    """A round is one look at the log, however many pages it reads."""
    log = [_event("task.created", 1, f"t{n}", queue="q", name=f"n{n}", status="pending") for n in range(500)]
    [minute] = count(EventCounter(), log).minutes.values()
    assert len(minute.groups) == 500
    assert OTHER not in minute.groups


def test_an_end_of_another_run_is_not_measured() -> None:
    counting = EventCounter()
    log = life(0, [("task.stalled", 10)])
    late = _event("task.failed", 10_000_000, "t0", attempt=1, run_id="of somebody else")
    figures = total([count(counting, [*log, late])]).total()
    assert (figures.failed, figures.run.count) == (1, 0)


def test_deadlocks_and_failed_messages_are_counted() -> None:
    counting = EventCounter()
    message = "00000000-0000-8000-8000-000000000000"  # the version of its id says that it sends
    log = [
        Event(type=DEADLOCK, at=1),
        _event("task.created", 1, message, queue="webhooks", name="webhooks:deliver", status="pending"),
        _event("task.retry_scheduled", 2, message, attempt=1, delay_ms=5),
        _event("task.failed", 3, message, attempt=2),
    ]
    counted = count(counting, log)
    assert (counted.deadlocks, counted.webhook_failures) == (1, 2)
