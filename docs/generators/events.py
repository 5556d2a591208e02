"""Every type of event and the fields of its payload."""

from collections.abc import Mapping
from typing import NamedTuple

from ade.core import agents, events
from ade.core.events import ALERT, EVENT_OF, RECLAIMED
from ade.core.locks import book
from docs.generators.tables import listed, table


class Told(NamedTuple):
    """When an event of a type is written, and what its payload holds. Fields in `sometimes` may be absent."""

    when: str
    always: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()


_RUN = ("attempt", "run_id", "worker")
_END = ("attempt", "run_id", "kind", "error")
_LOCK, _LOCK_MAYBE = ("namespace", "request_id", "state", "items", "scope"), ("purpose",)
_LATER = "approvals: the verb is in the state table, nothing leads to it yet"

EVENTS: Mapping[str, Told] = {
    "task.created": Told("a task was stored", ("queue", "name", "status"), ("parent_id",)),
    "task.claimed": Told("a worker took it; the attempt counts from here", _RUN),
    RECLAIMED: Told(
        "beside `task.claimed`: it was taken over from a silent worker",
        ("attempt", "previous_worker", "new_worker", "entry"),
    ),
    "task.succeeded": Told("its run returned and the result is stored", _RUN),
    "task.retry_scheduled": Told(
        "its run failed and will be repeated after the delay", ("attempt", "run_id", "delay_ms", "error")
    ),
    "task.failed": Told("it failed for good", _END),
    "task.dlq": Told("beside `task.failed`: it is a dead letter now", _END),
    ALERT: Told("beside `task.failed`: somebody should look, because it ran out of memory", _END),
    "task.stalled": Told("its worker went silent and the lease ran out", _RUN),
    "task.released": Told("a worker that shut down handed it back", (*_RUN, "reason")),
    "task.deferred": Told(
        "its locks are not free: it waits for them, and the run does not count", ("run_id", "worker", "locks")
    ),
    "task.recalled": Told("its locks were granted, so it may be claimed at once", ("locks",)),
    "task.cancelled": Told("somebody, its parent or a broken dependency stopped it", ("attempt",), ("reason",)),
    "task.replayed": Told("a dead letter runs again", ("generation", "edited")),
    "task.discarded": Told("a dead letter was struck off the list", ("reason",)),
    "task.edited": Told("a draft was changed", ("fields",)),
    events.QUEUE_PAUSED: Told("somebody paused a queue", ("queue",)),
    events.QUEUE_RESUMED: Told("somebody let it go on", ("queue",)),
    events.QUEUE_LIMITED: Told("somebody set or lifted its limit of unfinished tasks", ("queue", "max_depth")),
    events.SCHEDULE_CHANGED: Told("a schedule was made or replaced", ("schedule", "cron", "timezone", "name", "queue")),
    events.SCHEDULE_PAUSED: Told("somebody paused a schedule", ("schedule",)),
    events.SCHEDULE_RESUMED: Told("somebody let it go on", ("schedule",)),
    events.SCHEDULE_REMOVED: Told("somebody removed a schedule", ("schedule",)),
    agents.AGENT_REGISTERED: Told(
        "an agent was made known, or may do more or less than before", ("agent", "max_tasks")
    ),
    "agent.active": Told("somebody let an agent begin tasks again", ("agent",)),
    "agent.draining": Told("somebody let an agent begin nothing new", ("agent",)),
    "agent.offline": Told("somebody marked an agent as not there; it begins nothing new", ("agent",)),
    agents.AGENT_REMOVED: Told("somebody had an agent forgotten", ("agent",)),
    book.ACQUIRED: Told("a lock was free and is held now", _LOCK, _LOCK_MAYBE),
    book.QUEUED: Told("somebody stands in line for a lock", _LOCK, _LOCK_MAYBE),
    book.PROMOTED: Told("whoever stood in line has the lock now", _LOCK, _LOCK_MAYBE),
    book.UPGRADED: Told("a reader has become the writer, under a new token", _LOCK, _LOCK_MAYBE),
    book.DOWNGRADED: Told("a writer has become a reader", _LOCK, _LOCK_MAYBE),
    book.RELEASED: Told("a lock was let go, or somebody left the line", _LOCK, _LOCK_MAYBE),
    book.EXPIRED: Told("a lease or a wait ran out", _LOCK, (*_LOCK_MAYBE, "reason")),
    book.LOST: Told("an operator took a lock, or a place in line, away", (*_LOCK, "reason", "by"), _LOCK_MAYBE),
    book.DEADLOCK: Told("agents waited in a ring and this one gave way", (*_LOCK, "cycle"), _LOCK_MAYBE),
    "task.submitted": Told(_LATER),
    "task.assessed": Told(_LATER),
    "task.approved": Told(_LATER),
    "task.rejected": Told(_LATER),
    "task.queued": Told(_LATER),
    "approval.requested": Told(_LATER),
    "approval.changes_requested": Told(_LATER),
    "approval.expired": Told(_LATER),
}

FIELDS: Mapping[str, str] = {
    "agent": "its name",
    "attempt": "number of the run within its generation, from 1",
    "by": "who did it",
    "cron": "when it fires",
    "cycle": "the scopes that waited for each other",
    "delay_ms": "milliseconds until the next attempt",
    "edited": "whether the arguments were changed",
    "entry": "the task's place in the order of arrival",
    "error": "type and message of the error, cut to 500 characters",
    "fields": "names of the fields that were changed",
    "generation": "the generation that begins",
    "items": "the resources, each with its mode and its fencing token (0: not granted)",
    "kind": "kind of failure, see [The life of a task](../explanation/lifecycle.md#failures)",
    "locks": "the resources it waits or waited for",
    "max_depth": "how many unfinished tasks the queue may have; null for no limit",
    "max_tasks": "how many tasks the agent may have at once",
    "name": "the task's name",
    "namespace": "where the lock's name counts",
    "new_worker": "the worker that took the task over",
    "parent_id": "the task that enqueued this one",
    "previous_worker": "the worker that went silent",
    "purpose": "what the lock is for, as its holder said",
    "queue": "the queue, or the task's queue",
    "reason": "the reason somebody gave, or ADE has",
    "request_id": "the lock request, which is also the grant",
    "run_id": "the mark of the run",
    "schedule": "its name",
    "scope": "what holds and waits in one go, such as a run",
    "state": "how the request stood: granted, waiting or victim",
    "status": "the status the task begins with",
    "timezone": "where the clock of its cron line hangs",
    "worker": "id of the worker",
}


def event_types() -> str:
    unknown = [name for names in EVENT_OF.values() for name in names if name not in EVENTS]
    if unknown:
        raise KeyError(f"say what {', '.join(unknown)} means, in {__name__}")

    def row(kind: str, told: Told) -> list[str]:
        fields = [*told.always, *(f"{name}?" for name in told.sometimes)]
        return [f"`{kind}`", told.when, listed(fields)]

    return table(["type", "when", "payload"], (row(kind, told) for kind, told in EVENTS.items()))


def event_fields() -> str:
    used = sorted({name for told in EVENTS.values() for name in (*told.always, *told.sometimes)})
    return table(["field", "meaning"], ([f"`{name}`", FIELDS[name]] for name in used))
