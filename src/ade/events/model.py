"""The event record, the event type constants, and the timestamp fields in event payloads.

In the log and in Python, timestamps are integer milliseconds, as everywhere inside ADE. Code that shows or sends an
event chooses the output format. A test compares `MOMENTS` with the event reference.
"""

import hashlib
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct, structs

# An event is committed in the same transaction as the change it describes. All events form one ordered log.


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the log. `seq` is given by the store and orders everything; 0 means not yet stored."""

    type: str
    at: int
    task_id: str | None = None
    actor: str | None = None
    payload: dict[str, object] = {}
    seq: int = 0


# Digests that events carry, so that `ade audit verify` can compare the stored records with the log.


def content_digest(raw: Raw) -> str:
    """Return the SHA-256 of a JSON value, however a store formats it."""
    try:
        content = msgspec.json.encode(msgspec.json.decode(raw), order="deterministic")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        content = bytes(raw)
    return hashlib.sha256(content).hexdigest()


def record_digest(record: Struct) -> str:
    """Return the SHA-256 of a record without fields that have their defaults, so that a new field changes nothing."""
    said = {
        each.name: value for each in structs.fields(record) if (value := getattr(record, each.name)) != each.default
    }
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()


_OF_ACCESS = ("session.", "token.", "login_link.", "access.")


def is_of_access(event: Event) -> bool:
    """Return whether an event describes authentication. Such events need the `operate` permission, not only `read`."""
    return event.type.startswith(_OF_ACCESS)


APPROVAL_REQUESTED, APPROVAL_APPROVED, APPROVAL_REJECTED = (
    "approval.requested",
    "approval.approved",
    "approval.rejected",
)
APPROVAL_RESPONDED = "approval.responded"
APPROVAL_COMMENTED, APPROVAL_DISMISSED = "approval.commented", "approval.dismissed"
APPROVAL_ESCALATED, APPROVAL_BLOCKED, APPROVAL_UNBLOCKED = (
    "approval.escalated",
    "approval.blocked",
    "approval.unblocked",
)
APPROVAL_STALE = "approval.stale"  # an approval no longer counts, because something else would run
AUDIT_ANCHORED = "audit.anchored"
RECLAIMED = "task.reclaimed"  # in addition to task.claimed, when the task is reclaimed from a lost worker
ALERT = "alert"
QUEUE_PAUSED, QUEUE_RESUMED, QUEUE_LIMITED = "queue.paused", "queue.resumed", "queue.limited"
SCHEDULE_CHANGED, SCHEDULE_REMOVED = "schedule.changed", "schedule.removed"
SCHEDULE_PAUSED, SCHEDULE_RESUMED = "schedule.paused", "schedule.resumed"

FINAL_EVENTS = frozenset({"task.succeeded", "task.failed", "task.cancelled", "task.rejected", "approval.expired"})


_SPAN = (("starts_at",), ("ends_at",))
_VOTE = (("vote", "at"),)

MOMENTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "approval.approved": _VOTE,
    "approval.changes_requested": _VOTE,
    "approval.rejected": _VOTE,
    "approval.responded": _VOTE,
    "approval.requested": (("gate", "opened_at"), ("gate", "decided_at")),
    "delegation.created": _SPAN,
    "delegation.revoked": _SPAN,
    "delegation.ring_found": _SPAN,
    "login_link.created": (("expires_at",),),
    "task.created": (("run_after",),),
    "task.rescheduled": (("run_after",), ("before", "run_after")),
    "token.created": (("expires_at",),),
    "webhook.secret_rotated": (("ends_at",),),
}


def with_moments(event_type: str, payload: dict[str, object], convert: Callable[[object], object]) -> dict[str, object]:
    """Return the payload with its timestamps converted, or the same object if its event type has none."""
    places = MOMENTS.get(event_type)
    if places is None:
        return payload
    changed = payload
    for place in places:
        changed = _converted(changed, place, convert)
    return changed


def _converted(
    values: dict[str, object], place: tuple[str, ...], convert: Callable[[object], object]
) -> dict[str, object]:
    name, *inside = place
    value = values.get(name)
    if value is None:
        return values
    if not inside:
        return {**values, name: convert(value)}
    return {**values, name: _converted(value, tuple(inside), convert)} if isinstance(value, dict) else values
