"""The Change record: the task before and after, the guard for the write, and the events to append."""

from collections.abc import Mapping

from msgspec import Struct, structs

from ade.events.model import Event
from ade.tasks.lifecycle import Status, Verb, step
from ade.tasks.model import Task

EVENT_OF: Mapping[Verb, tuple[str, ...]] = {
    Verb.CREATE: ("task.created",),
    Verb.EDIT: ("task.edited",),
    Verb.SUBMIT: ("task.submitted",),
    Verb.ASSESS: ("task.assessed",),
    Verb.REVIEW: (),  # votes and comments add their own events
    Verb.APPROVE: ("task.approved",),
    Verb.REJECT: ("task.rejected",),
    Verb.REQUEST_CHANGES: ("approval.changes_requested",),
    Verb.RESPOND: (),  # as for votes
    Verb.REOPEN: ("approval.reopened",),
    Verb.REVOKE: ("approval.revoked",),
    Verb.BREAK_GLASS: ("approval.bypassed",),
    Verb.EXPIRE: ("approval.expired",),
    Verb.START: ("task.queued",),
    Verb.CLAIM: ("task.claimed",),
    Verb.SUCCEED: ("task.succeeded",),
    Verb.RETRY: ("task.retry_scheduled",),
    Verb.FAIL: ("task.failed", "task.dlq"),
    Verb.HOLD: ("task.held",),
    Verb.STALL: ("task.stalled",),
    Verb.RELEASE: ("task.released",),
    Verb.DEFER: ("task.deferred",),
    Verb.RECALL: ("task.recalled",),
    Verb.RESCHEDULE: ("task.rescheduled",),
    Verb.CANCEL: ("task.cancelled",),
    Verb.REPLAY: ("task.replayed",),
    Verb.DISCARD: ("task.discarded",),
}

(QUEUED,) = EVENT_OF[Verb.START]

(CHANGES_REQUESTED,) = EVENT_OF[Verb.REQUEST_CHANGES]

(BYPASSED,) = EVENT_OF[Verb.BREAK_GLASS]


class ChangePrecondition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The guard of a change: conditions that must still hold when it is written.

    A run's own writes name its `run_id`, which acts as the fencing token. Other writers name the `version` they
    read. Writers that consider a lease lost also name `lease_until`, so that a renewal in between wins.
    """

    version: int | None = None
    run_id: str | None = None
    lease_until: int | None = None


class Change(Struct, frozen=True, kw_only=True):
    """A decided transition of one task, to be written if its guard still holds."""

    verb: Verb
    before: Task
    after: Task
    fields: frozenset[str]
    guard: ChangePrecondition
    events: tuple[Event, ...]

    @property
    def task_id(self) -> str:
        return self.before.id


def change(
    task: Task,
    verb: Verb,
    *,
    now: int,
    guard: ChangePrecondition | None = None,
    target: Status | None = None,
    actor: str | None = None,
    payload: dict[str, object] | None = None,
    first_events: tuple[Event, ...] = (),
    more_events: tuple[Event, ...] = (),
    also: Mapping[str, object] | None = None,
    **fields: object,
) -> Change:
    """Build a Change: apply the transition, increment the version, and add the events of the verb."""
    if also:
        fields.update(also)
    status = step(task.status, verb, target)
    after = structs.replace(task, status=status, version=task.version + 1, updated_at=now, **fields)
    about = payload or {}
    events = [Event(type=name, at=now, task_id=task.id, actor=actor, payload=about) for name in EVENT_OF[verb]]
    return Change(
        verb=verb,
        before=task,
        after=after,
        fields=frozenset(fields),
        guard=guard or ChangePrecondition(version=task.version),
        events=(*first_events, *events, *more_events),
    )
