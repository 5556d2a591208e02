"""The types of all events there are, for who asks for some by name. A test compares them with the reference."""

TYPES = frozenset({
    "access.foreign", "access.refused", "agent.active", "agent.draining", "agent.offline", "agent.registered",
    "agent.removed", "agent_run.began", "agent_run.ended", "alert", "approval.approved", "approval.blocked",
    "approval.bypassed", "approval.changes_requested", "approval.commented", "approval.dismissed",
    "approval.escalated", "approval.expired", "approval.rejected", "approval.reopened", "approval.requested",
    "approval.revoked", "approval.unblocked", "delegation.created", "delegation.revoked", "delegation.ring_found",
    "feature.changed", "guard.denied", "inbox.batch_confirmed", "inbox.batch_dequeued", "inbox.batch_returned",
    "inbox.blocked", "inbox.cleared", "inbox.item_dropped", "inbox.item_enqueued", "inbox.item_removed",
    "lock.acquired", "lock.deadlock", "lock.downgraded", "lock.expired", "lock.lost", "lock.promoted", "lock.queued",
    "lock.released", "lock.upgraded", "login_link.created", "login_link.used", "policy.self_review_allowed",
    "queue.limited", "queue.paused", "queue.resumed", "rulebook.changed", "schedule.changed", "schedule.paused",
    "schedule.removed", "schedule.resumed", "session.ended", "session.opened", "session.reauthenticated",
    "setting.changed", "task.approved", "task.assessed", "task.cancelled", "task.claimed", "task.created",
    "task.deferred", "task.discarded", "task.dlq", "task.edited", "task.failed", "task.held", "task.queued",
    "task.recalled", "task.reclaimed", "task.rejected", "task.released", "task.replayed", "task.retry_scheduled",
    "task.stalled", "task.submitted", "task.succeeded", "token.created", "token.revoked", "user.added",
    "user.changed", "webhook.changed", "webhook.created", "webhook.disabled", "webhook.enabled", "webhook.removed",
    "webhook.replayed", "webhook.secret_rotated", "webhook.tested",
})  # fmt: skip


def nearest_types(name: str) -> str:
    """What was probably meant, as `task.failed or task.failed_over`; empty if nothing is near."""
    from difflib import get_close_matches  # slow to load, and only needed here

    return " or ".join(get_close_matches(name, sorted(TYPES), n=3, cutoff=0.5))
