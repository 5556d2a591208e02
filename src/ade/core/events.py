"""Events: what happened, committed together with the change it describes, in one ordered log."""

from collections.abc import Mapping

from msgspec import Struct

from ade.core.lifecycle import Verb


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the log. `seq` is given by the store and orders everything; 0 means not yet stored."""

    type: str
    at: int
    task_id: str | None = None
    actor: str | None = None
    payload: dict[str, object] = {}
    seq: int = 0


_OF_ACCESS = ("session.", "token.", "login_link.", "access.")


def is_of_access(event: Event) -> bool:
    """Whether it tells how somebody gets in, and from where: that is for people who operate, not for all who read."""
    return event.type.startswith(_OF_ACCESS)


EVENT_OF: Mapping[Verb, tuple[str, ...]] = {
    Verb.CREATE: ("task.created",),
    Verb.EDIT: ("task.edited",),
    Verb.SUBMIT: ("task.submitted",),
    Verb.ASSESS: ("task.assessed",),
    Verb.REVIEW: (),  # what was said is told by an event of its own
    Verb.APPROVE: ("task.approved",),
    Verb.REJECT: ("task.rejected",),
    Verb.REQUEST_CHANGES: ("approval.changes_requested",),
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
    Verb.CANCEL: ("task.cancelled",),
    Verb.REPLAY: ("task.replayed",),
    Verb.DISCARD: ("task.discarded",),
}

APPROVAL_REQUESTED, APPROVAL_APPROVED, APPROVAL_REJECTED = (
    "approval.requested",
    "approval.approved",
    "approval.rejected",
)
APPROVAL_COMMENTED, APPROVAL_DISMISSED = "approval.commented", "approval.dismissed"
APPROVAL_ESCALATED, APPROVAL_BLOCKED, APPROVAL_UNBLOCKED = (
    "approval.escalated",
    "approval.blocked",
    "approval.unblocked",
)
(QUEUED,) = EVENT_OF[Verb.START]
(CHANGES_REQUESTED,) = EVENT_OF[Verb.REQUEST_CHANGES]
(BYPASSED,) = EVENT_OF[Verb.BREAK_GLASS]
RECLAIMED = "task.reclaimed"  # beside task.claimed when the task was taken over from a silent worker
ALERT = "alert"
QUEUE_PAUSED, QUEUE_RESUMED, QUEUE_LIMITED = "queue.paused", "queue.resumed", "queue.limited"
SCHEDULE_CHANGED, SCHEDULE_REMOVED = "schedule.changed", "schedule.removed"
SCHEDULE_PAUSED, SCHEDULE_RESUMED = "schedule.paused", "schedule.resumed"

FINAL_EVENTS = frozenset({"task.succeeded", "task.failed", "task.cancelled", "task.rejected", "approval.expired"})
