"""Records as JSON documents: times as RFC 3339 text, payloads as JSON, nothing that only a store understands."""

from typing import TYPE_CHECKING, Any

import msgspec

from ade.cli.parameters import local
from ade.events.model import Event, with_moments
from ade.tasks.model import OutputLine, Queue, Schedule, Task, Worker
from ade.tasks.reasons import moment

if TYPE_CHECKING:  # of use to few commands, and not free to load
    from ade.tasks.overview import Overview
    from ade.worker.views import WorkerView

_MOMENTS = (
    *("run_after", "deadline", "created_at", "updated_at", "submitted_at", "approved_at", "started_at", "finished_at"),
    *("at", "next_at", "last_at", "progress_at", "first_at", "ended_at"),
    *("opened_at", "decided_at", "expires_at", "valid_until", "due_at", "not_before", "not_after"),
)
_INSIDE = ("lease_until", "heartbeat_until", "args_digest", "waiting_on")  # of no meaning outside the store


def view(record: msgspec.Struct) -> dict[str, Any]:
    """All fields that are set, in the order of the record."""
    shown: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in _INSIDE or value is None or value == () or (name in _MOMENTS and value == 0):
            continue
        shown[name] = moment(value) if name in _MOMENTS and isinstance(value, int) else value
    return shown


def facts_view(facts: dict[str, object]) -> dict[str, object]:
    return {name: moment(each) if name in _MOMENTS and isinstance(each, int) else each for name, each in facts.items()}


def task_view(task: Task) -> dict[str, Any]:
    shown = view(task)
    if not task.discarded:
        del shown["discarded"]
    if not task.result_expired:
        del shown["result_expired"]
    shown.pop("review", None)
    if task.risk is not None:
        shown["risk"] = risk_view(task.risk)
    gate = task.review.gate if task.review is not None else None
    if gate is not None:
        shown["approval"] = {"id": gate.id, "state": gate.state, "expires_at": moment(gate.expires_at)}
    return shown


def risk_view(risk: dict[str, Any]) -> dict[str, Any]:
    return {**risk, "assessed_at": moment(risk["assessed_at"])} if "assessed_at" in risk else risk


def event_view(event: Event) -> dict[str, Any]:
    return {"seq": event.seq, **view(event), "payload": with_moments(event.type, event.payload, _shown_moment)}


def payload_view(event: Event) -> dict[str, object]:
    """For a line that a person reads: moments in local time, and nothing that is empty."""
    told = with_moments(event.type, event.payload, lambda value: local(value) if isinstance(value, int) else value)
    return {name: value for name, value in told.items() if value}


def _shown_moment(value: object) -> object:
    return moment(value) if isinstance(value, int) else value


def line_view(line: OutputLine) -> dict[str, Any]:
    return view(line)


def queue_view(queue: Queue) -> dict[str, Any]:
    return view(queue)


def schedule_view(schedule: Schedule) -> dict[str, Any]:
    return view(schedule)


def worker_view(seen: "WorkerView") -> dict[str, Any]:
    worker: Worker = seen.worker
    return {**view(worker), "liveness": seen.liveness, "silent_ms": seen.silent_ms, "stuck_ms": seen.stuck_ms}


def overview_view(overview: "Overview") -> dict[str, Any]:
    shown = view(overview)
    shown["queues"] = [{**view(queue), "unfinished": queue.unfinished} for queue in overview.queues]
    shown["names"] = [view(name) for name in overview.names]
    shown["workers"] = [worker_view(worker) for worker in overview.workers]
    return shown
