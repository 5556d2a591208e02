"""Every metric there is. The reference page is made from it, and what is told has no others."""

from collections.abc import Mapping, Sequence
from enum import StrEnum, auto

from msgspec import Struct

from ade.core.figures.histograms import ATTEMPT_BOUNDS, MS_BOUNDS


class Kind(StrEnum):
    COUNTER = auto()  # only ever grows, over restarts too
    GAUGE = auto()  # how it is now
    HISTOGRAM = auto()


class Family(Struct, frozen=True, kw_only=True):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[int, ...] = ()


_GROUP = ("queue", "name")


def _counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
    return Family(name=name, kind=Kind.COUNTER, help=text, labels=labels)


def _gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
    return Family(name=name, kind=Kind.GAUGE, help=text, labels=labels)


def _histogram(name: str, text: str, bounds: tuple[int, ...]) -> Family:
    return Family(name=name, kind=Kind.HISTOGRAM, help=text, labels=_GROUP, bounds=bounds)


_ALL: Sequence[Family] = (
    _counter("ade_tasks_enqueued_total", "Tasks that were stored.", _GROUP),
    _counter("ade_tasks_completed_total", "Tasks that completed.", _GROUP),
    _counter("ade_tasks_failed_total", "Tasks that failed for good.", _GROUP),
    _counter("ade_tasks_retried_total", "Runs that failed and are repeated.", _GROUP),
    _counter("ade_tasks_cancelled_total", "Tasks that were cancelled.", _GROUP),
    _counter("ade_tasks_rejected_total", "Tasks that people rejected, or did not answer in time.", _GROUP),
    _histogram("ade_task_wait_ms", "From the moment a task was due to its claim by a worker.", MS_BOUNDS),
    _histogram("ade_task_duration_ms", "From the claim of a run to its end, however it ended.", MS_BOUNDS),
    _histogram("ade_task_attempts", "Attempts that tasks had used up when they completed or failed.", ATTEMPT_BOUNDS),
    _gauge("ade_queue_pending_total", "Tasks that wait for a worker, or to be due.", _GROUP),
    _gauge("ade_queue_delayed_total", "Tasks that are not due yet, in all queues."),
    _gauge("ade_queue_stream_length", "Tasks of the queue that wait for a worker or are with one.", ("queue",)),
    _gauge("ade_queue_oldest_ready_age_ms", "For how long the oldest ready task has been due.", ("queue",)),
    _gauge("ade_tasks_running", "Tasks that workers have.", _GROUP),
    _gauge("ade_dead_letters", "Failed tasks that nobody has dealt with, counted up to 1000."),
    _gauge("ade_approvals_waiting", "Tasks that wait for people."),
    _gauge("ade_approvals_oldest_age_ms", "For how long the oldest of these has been waiting."),
    _gauge("ade_locks_held", "Locks that are held."),
    _gauge("ade_locks_waiting", "Requests for locks that wait in line."),
    _counter("ade_lock_deadlocks_total", "Rings of waiters that were found and opened."),
    _gauge("ade_event_cursor_lag", "Events that a reader of the log has not read, counted up to 5000.", ("reader",)),
    _counter("ade_webhook_failures_total", "Messages to webhooks that did not arrive, each attempt counted."),
    _gauge("ade_workers_active_total", "Workers that are at work."),
    _gauge("ade_workers_dead_total", "Workers that are silent, or whose loop stands still."),
    _gauge("ade_build_info", "Always 1; the label says which version answers.", ("version",)),
)
FAMILIES: Mapping[str, Family] = {family.name: family for family in _ALL}
