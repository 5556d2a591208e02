"""Webhooks as they are kept, what becomes of them, and what is told of it in the log."""

from collections.abc import Sequence

from msgspec import Struct, structs

from ade.core.webhooks.addresses import PUBLIC, Reach
from ade.core.webhooks.errors import InvalidWebhook
from ade.core.webhooks.matching import check_patterns
from ade.core.webhooks.signatures import key_of
from ade.core.webhooks.targets import check_url

WEBHOOK_CREATED, WEBHOOK_CHANGED, WEBHOOK_REMOVED = "webhook.created", "webhook.changed", "webhook.removed"
WEBHOOK_ROTATED, WEBHOOK_REPLAYED = "webhook.secret_rotated", "webhook.replayed"
WEBHOOK_DISABLED, WEBHOOK_ENABLED = "webhook.disabled", "webhook.enabled"
WEBHOOK_TESTED = "webhook.tested"

MOST_WEBHOOKS = 100  # each makes a task of every event that it wants
USUAL_OVERLAP_MS, LONGEST_OVERLAP_MS = 24 * 3_600_000, 7 * 24 * 3_600_000
_MOST_SECRETS = 3  # that sign at once
_LONGEST_DESCRIPTION, _LONGEST_REASON = 200, 500


class Secret(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`until` is when an old one stops signing; the one without it is the current one."""

    value: str
    until: int | None = None

    def __repr__(self) -> str:
        return f"Secret(until={self.until})"  # nothing of it in a log


class Webhook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom to tell of which events. Times are ms UTC."""

    id: str
    url: str  # often a secret itself: only its origin is told
    events: tuple[str, ...]  # patterns, such as `task.*`
    secrets: tuple[Secret, ...]  # the current one first
    description: str = ""
    is_active: bool = True
    disabled_at: int | None = None
    disabled_why: str | None = None
    since: int = 0  # seq: only events after it are sent
    created_by: str | None = None
    created_at: int = 0
    updated_at: int = 0

    def __repr__(self) -> str:
        return f"Webhook({self.id!r})"

    def signing_secrets(self, now: int) -> list[str]:
        """Those to sign with now, the current one first."""
        return [secret.value for secret in self.secrets if secret.until is None or now < secret.until]


def check_webhook(webhook: Webhook, reach: Reach = PUBLIC) -> None:
    """Raise InvalidWebhook for one that there must not be."""
    check_url(webhook.url, reach)
    check_patterns(webhook.events)
    for secret in webhook.secrets:
        key_of(secret.value)
    if len(webhook.description) > _LONGEST_DESCRIPTION or not webhook.description.isprintable():
        raise InvalidWebhook(f"a description has at most {_LONGEST_DESCRIPTION} printable characters")


def rotated(webhook: Webhook, value: str, *, overlap_ms: int, now: int) -> Webhook:
    """The webhook with a new secret. Until the overlap is over, the one before it signs too; an overlap of 0 ends all
    older ones at once, for a secret that has leaked. Raises InvalidWebhook."""
    key_of(value)
    if not 0 <= overlap_ms <= LONGEST_OVERLAP_MS:
        raise InvalidWebhook("an old secret signs for at most 7 days after it was replaced, and for 0 seconds at least")
    if value in (secret.value for secret in webhook.secrets):
        raise InvalidWebhook("this is the webhook's secret already, or was it until lately; give a new one")
    end = now + overlap_ms
    older = [
        Secret(value=secret.value, until=end if secret.until is None else min(secret.until, end))
        for secret in webhook.secrets
    ]
    live = [secret for secret in older if secret.until is not None and secret.until > now]
    return structs.replace(webhook, secrets=(Secret(value=value), *live)[:_MOST_SECRETS], updated_at=now)


def disabled(webhook: Webhook, why: str, *, now: int) -> Webhook:
    """The webhook, from now on silent. What happens meanwhile is never sent by itself."""
    shown = "".join(char if char.isprintable() else " " for char in why)[:_LONGEST_REASON]
    return structs.replace(webhook, is_active=False, disabled_at=now, disabled_why=shown, updated_at=now)


def enabled(webhook: Webhook, *, since: int, now: int) -> Webhook:
    """The webhook, told of what comes after this seq."""
    return structs.replace(webhook, is_active=True, disabled_at=None, disabled_why=None, since=since, updated_at=now)


def about(webhook: Webhook, **more: object) -> dict[str, object]:
    """What an event tells of a webhook: neither its secrets nor its path."""
    return {"webhook": webhook.id, **more}


def changed_fields(before: Webhook, after: Webhook) -> Sequence[str]:
    names = ("url", "events", "description")
    return [name for name in names if getattr(before, name) != getattr(after, name)]
