"""Webhooks as shown to users: without secrets, and with URLs only for callers that can change them."""

from collections.abc import Sequence

from msgspec import Struct

from ade.stores.ports import Stores
from ade.stores.repository import StoredRecord
from ade.webhooks.deliveries import WebhookHealth
from ade.webhooks.destinations import origin_of
from ade.webhooks.model import TaskSelection, Webhook
from ade.webhooks.service import HEALTH, WEBHOOKS, find, list_health


class WebhookView(Struct, frozen=True, kw_only=True):
    """Whom to tell of which events, and how that goes. The path of its URL is often a secret: others than admins see
    the origin alone."""

    id: str
    origin: str
    events: Sequence[str]
    is_active: bool
    version: int
    tasks: TaskSelection = TaskSelection()
    url: str | None = None
    description: str = ""
    disabled_at: int | None = None
    disabled_why: str | None = None
    old_secrets: int = 0  # with which messages are signed as well
    old_secrets_end_at: int | None = None  # the last of them
    created_by: str | None = None
    created_at: int = 0
    updated_at: int = 0
    health: WebhookHealth = WebhookHealth()


class WebhookWithSecret(WebhookView, frozen=True, kw_only=True):
    """A webhook whose secret was just made: it is shown this once, and never again."""

    secret: str

    def __repr__(self) -> str:
        return f"WebhookWithSecret({self.id!r})"  # nothing of it in a log


async def view_webhook(stores: Stores, webhook_id: str, *, with_url: bool) -> WebhookView:
    """Return one webhook. Raises UnknownWebhook."""
    stored = await find(stores, webhook_id)
    health = await HEALTH.get(stores, webhook_id)
    return _view(stores, stored, WebhookHealth() if health is None else health.record, with_url=with_url)


async def view_webhooks(stores: Stores, *, with_urls: bool) -> list[WebhookView]:
    """Return all webhooks, oldest first."""
    stored, known = await WEBHOOKS.all(stores), await list_health(stores)
    return [_view(stores, one, known.get(each, WebhookHealth()), with_url=with_urls) for each, one in stored.items()]


def _view(stores: Stores, stored: StoredRecord[Webhook], health: WebhookHealth, *, with_url: bool) -> WebhookView:
    webhook, now = stored.record, stores.clock.now()
    ends = [secret.until for secret in webhook.secrets if secret.until is not None and secret.until > now]
    return WebhookView(
        id=webhook.id,
        origin=origin_of(webhook.url),
        events=webhook.events,
        is_active=webhook.is_active,
        version=stored.version,
        tasks=webhook.tasks,
        url=webhook.url if with_url else None,
        description=webhook.description,
        disabled_at=webhook.disabled_at,
        disabled_why=webhook.disabled_why,
        old_secrets=len(ends),
        old_secrets_end_at=max(ends, default=None),
        created_by=webhook.created_by,
        created_at=webhook.created_at,
        updated_at=webhook.updated_at,
        health=health,
    )
