"""Which fields of a payload hold a moment, by the type of its event.

In the log, and in Python, they are integer milliseconds as everywhere inside ADE. Whoever shows or sends an event says
how they are written, and a test compares this table with what the reference says of each field.
"""

from collections.abc import Callable, Mapping

_SPAN = (("starts_at",), ("ends_at",))
_VOTE = (("vote", "at"),)

MOMENTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "approval.approved": _VOTE,
    "approval.changes_requested": _VOTE,
    "approval.rejected": _VOTE,
    "approval.requested": (("gate", "opened_at"), ("gate", "decided_at")),
    "delegation.created": _SPAN,
    "delegation.revoked": _SPAN,
    "delegation.ring_found": _SPAN,
    "login_link.created": (("expires_at",),),
    "task.created": (("run_after",),),
    "token.created": (("expires_at",),),
    "webhook.secret_rotated": (("ends_at",),),
}


def with_moments(event_type: str, payload: dict[str, object], convert: Callable[[object], object]) -> dict[str, object]:
    """The payload with its moments converted, or itself where it has none: most have none, and that costs a look."""
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
