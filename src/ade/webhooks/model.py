"""The webhook record, its event type patterns, and its state changes."""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct, field, structs

from ade.errors import InvalidWebhook, close_names
from ade.server.request_types import Form, described
from ade.tasks.model import Task
from ade.webhooks.destinations import PUBLIC, NetworkPolicy, check_url
from ade.webhooks.signatures import key_of

# All event types, to validate patterns. A test compares them with the event reference.


TYPES = frozenset({
    "access.foreign", "access.refused", "agent.active", "agent.draining", "agent.offline", "agent.registered",
    "agent.removed", "agent_run.began", "agent_run.ended", "alert", "approval.approved", "approval.blocked",
    "approval.bypassed", "approval.changes_requested", "approval.commented", "approval.dismissed",
    "approval.escalated", "approval.expired", "approval.rejected", "approval.reopened", "approval.requested",
    "approval.responded", "approval.revoked", "approval.stale", "approval.unblocked", "audit.anchored",
    "delegation.created", "delegation.revoked", "delegation.ring_found", "feature.changed", "guard.denied",
    "inbox.batch_confirmed", "inbox.batch_dequeued", "inbox.batch_returned",
    "inbox.blocked", "inbox.cleared", "inbox.item_dropped", "inbox.item_enqueued", "inbox.item_removed",
    "lock.acquired", "lock.deadlock", "lock.downgraded", "lock.expired", "lock.lost", "lock.promoted", "lock.queued",
    "lock.released", "lock.upgraded", "login_link.created", "login_link.used", "notification.channel_added",
    "notification.channel_disabled", "notification.channel_removed", "notification.preferences_changed",
    "policy.self_review_allowed", "queue.limited", "queue.paused", "queue.resumed", "rollback.not_stored",
    "rulebook.changed", "schedule.changed", "schedule.paused",
    "schedule.removed", "schedule.resumed", "session.ended", "session.opened", "session.reauthenticated",
    "setting.changed", "task.approved", "task.assessed", "task.cancelled", "task.claimed", "task.created",
    "task.deferred", "task.discarded", "task.dlq", "task.edited", "task.failed", "task.held", "task.queued",
    "task.recalled", "task.reclaimed", "task.rejected", "task.released", "task.replayed", "task.rescheduled",
    "task.retry_scheduled",
    "task.stalled", "task.submitted", "task.succeeded", "token.created", "token.revoked", "user.added",
    "user.changed", "user.password_changed", "user.password_set_by_other", "user.roles_changed", "webhook.changed",
    "webhook.created", "webhook.disabled", "webhook.enabled", "webhook.removed", "webhook.replayed",
    "webhook.secret_rotated", "webhook.tested",
})  # fmt: skip


def nearest_types(name: str) -> str:
    """Suggest similar event types, as `task.failed or task.failed_over`; empty if there are none."""
    return " or ".join(close_names(name, sorted(TYPES), most=3, cutoff=0.5))


# A pattern is an event type, a prefix (`task.*`), or everything (`*`).


EVERYTHING = "*"
MOST_PATTERNS = 50
_BELOW = ".*"
_PATTERN = re.compile(r"(?=.{1,100}\Z)(?:\*|[a-z0-9_]+(?:\.[a-z0-9_]+)*(?:\.\*)?)")


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise InvalidWebhook unless all patterns are well-formed."""
    if not 1 <= len(patterns) <= MOST_PATTERNS:
        raise InvalidWebhook(f"a webhook names 1 to {MOST_PATTERNS} types of events, not {len(patterns)}")
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidWebhook(
                f"{pattern[:60]!r} is not an event type: use one such as task.failed, a prefix such as task.*, or *"
            )


def check_known(patterns: Sequence[str]) -> None:
    """Raise InvalidWebhook for a pattern that matches no known event type."""
    for pattern in patterns:
        if not any(_fits(pattern, each) for each in TYPES):
            near = nearest_types(pattern.removesuffix(_BELOW))
            meant = f"; did you mean {near}?" if near else "; the event reference lists all types"
            raise InvalidWebhook(f"no event has the type {pattern[:60]!r}{meant}")


def matches(patterns: Sequence[str], event_type: str) -> bool:
    """Return whether any pattern matches the event type."""
    return any(_fits(pattern, event_type) for pattern in patterns)


def _fits(pattern: str, event_type: str) -> bool:
    if pattern == EVERYTHING:
        return True
    if pattern.endswith(_BELOW):
        return event_type.startswith(pattern[:-1])
    return pattern == event_type


WEBHOOK_CREATED, WEBHOOK_CHANGED, WEBHOOK_REMOVED = "webhook.created", "webhook.changed", "webhook.removed"
WEBHOOK_ROTATED, WEBHOOK_REPLAYED = "webhook.secret_rotated", "webhook.replayed"
WEBHOOK_DISABLED, WEBHOOK_ENABLED = "webhook.disabled", "webhook.enabled"
WEBHOOK_TESTED = "webhook.tested"

MOST_WEBHOOKS = 100  # each enqueues a task for every event that it receives
USUAL_OVERLAP_MS, LONGEST_OVERLAP_MS = 24 * 3_600_000, 7 * 24 * 3_600_000
_MOST_SECRETS = 3  # that sign concurrently
_LONGEST_DESCRIPTION, _LONGEST_REASON = 200, 500


class Secret(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A signing secret. `until` is when an old secret stops signing; the current secret has none."""

    value: str
    until: int | None = None

    def __repr__(self) -> str:
        return f"Secret(until={self.until})"  # keep the value out of logs


class TaskSelection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tasks that a webhook is about: one of the values of each field that has some. Empty: every event."""

    names: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.names or self.queues or self.tags or self.authors)

    def includes(self, task: Task | None) -> bool:
        """Whether an event of this task is sent. Events without a task are sent only if nothing is selected."""
        if task is None:
            return self.is_empty
        return (
            (not self.names or task.name in self.names)
            and (not self.queues or task.queue in self.queues)
            and (not self.tags or not set(self.tags).isdisjoint(task.tags))
            and (not self.authors or task.author_id in self.authors)
        )


Values = Annotated[list[str], described(maxItems=50)]


class SelectTasks(Form):
    """The tasks whose events are sent: of one of the names, queues, tags, and authors. An empty list selects all."""

    names: Values = field(default_factory=list)
    queues: Values = field(default_factory=list)
    tags: Values = field(default_factory=list)
    authors: Values = field(default_factory=list)


class Webhook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A URL and the events that are sent to it. Times are ms UTC."""

    id: str
    url: str  # often a secret itself: events contain only its origin
    events: tuple[str, ...]  # patterns such as `task.*`
    secrets: tuple[Secret, ...]  # the current one first
    tasks: TaskSelection = TaskSelection()  # only events of these tasks
    description: str = ""
    is_active: bool = True
    disabled_at: int | None = None
    disabled_why: str | None = None
    since: int = 0  # seq: only later events are sent
    created_by: str | None = None
    created_at: int = 0
    updated_at: int = 0

    def __repr__(self) -> str:
        return f"Webhook({self.id!r})"

    def signing_secrets(self, now: int) -> list[str]:
        """Return the secrets to sign with now, the current one first."""
        return [secret.value for secret in self.secrets if secret.until is None or now < secret.until]


def check_webhook(webhook: Webhook, reach: NetworkPolicy = PUBLIC) -> None:
    """Raise InvalidWebhook if the URL, a pattern, a secret, or the description is not allowed."""
    check_url(webhook.url, reach)
    check_patterns(webhook.events)
    for part in webhook.tasks.__struct_fields__:
        values: tuple[str, ...] = getattr(webhook.tasks, part)
        if len(values) > MOST_PATTERNS or any(not 0 < len(value) <= _LONGEST_DESCRIPTION for value in values):
            raise InvalidWebhook(f"{part} has up to {MOST_PATTERNS} values of 1 to {_LONGEST_DESCRIPTION} characters")
    for secret in webhook.secrets:
        key_of(secret.value)
    if len(webhook.description) > _LONGEST_DESCRIPTION or not webhook.description.isprintable():
        raise InvalidWebhook(f"a description has at most {_LONGEST_DESCRIPTION} printable characters")


def rotated(webhook: Webhook, value: str, *, overlap_ms: int, now: int) -> Webhook:
    """Return the webhook with a new secret. The previous secret also signs until the overlap ends. An overlap of 0
    immediately ends all older secrets, for a secret that has leaked. Raises InvalidWebhook.
    """
    key_of(value)
    if not 0 <= overlap_ms <= LONGEST_OVERLAP_MS:
        raise InvalidWebhook("the overlap must be 0 seconds to 7 days")
    if value in (secret.value for secret in webhook.secrets):
        raise InvalidWebhook("this is the current or a recent secret of the webhook; use a new one")
    end = now + overlap_ms
    older = [
        Secret(value=secret.value, until=end if secret.until is None else min(secret.until, end))
        for secret in webhook.secrets
    ]
    live = [secret for secret in older if secret.until is not None and secret.until > now]
    return structs.replace(webhook, secrets=(Secret(value=value), *live)[:_MOST_SECRETS], updated_at=now)


def disabled(webhook: Webhook, why: str, *, now: int) -> Webhook:
    """Return the disabled webhook. Events that happen meanwhile are never sent automatically."""
    shown = "".join(char if char.isprintable() else " " for char in why)[:_LONGEST_REASON]
    return structs.replace(webhook, is_active=False, disabled_at=now, disabled_why=shown, updated_at=now)


def enabled(webhook: Webhook, *, since: int, now: int) -> Webhook:
    """Return the enabled webhook, which receives events after this seq."""
    return structs.replace(webhook, is_active=True, disabled_at=None, disabled_why=None, since=since, updated_at=now)


def about(webhook: Webhook, **more: object) -> dict[str, object]:
    """Return the event payload about a webhook, which contains neither its secrets nor its URL path."""
    return {"webhook": webhook.id, **more}


def changed_fields(before: Webhook, after: Webhook) -> Sequence[str]:
    """Return the names of the fields that differ."""
    names = ("url", "events", "tasks", "description")
    return [name for name in names if getattr(before, name) != getattr(after, name)]
