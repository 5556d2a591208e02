"""Create, change, rotate, and remove webhooks in the store, each with an event in the same write.

The caller has checked the permission (ADMINISTER: a webhook sends data out of the system). Records contain secrets in
plaintext, because messages are signed with them. Front ends show a `Webhook` without `secrets`, and a secret only to
the caller that has just created it.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from ade.errors import InvalidWebhook, StaleWrite, UnknownWebhook
from ade.events.model import Event
from ade.settings.sections import WebhookSettings
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord, decided
from ade.stores.resource_ports import DocumentWrite
from ade.tasks.enqueue import fresh_id
from ade.tasks.identifiers import KIND
from ade.webhooks.deliveries import Delivery, WebhookHealth
from ade.webhooks.destinations import PUBLIC, NetworkPolicy, check_url, networks_of
from ade.webhooks.model import (
    MOST_WEBHOOKS,
    USUAL_OVERLAP_MS,
    WEBHOOK_CHANGED,
    WEBHOOK_CREATED,
    WEBHOOK_DISABLED,
    WEBHOOK_ENABLED,
    WEBHOOK_REMOVED,
    WEBHOOK_ROTATED,
    WEBHOOK_TESTED,
    Secret,
    TaskSelection,
    Webhook,
    about,
    changed_fields,
    check_known,
    check_webhook,
    disabled,
    enabled,
    rotated,
)
from ade.webhooks.signatures import SECRET_BYTES, secret_of

WEBHOOKS = Repository(KIND, Webhook)
HEALTH = Repository("webhook_health", WebhookHealth)


def deliveries_of(webhook_id: str) -> Repository[Delivery]:
    """Return the delivery repository of one webhook: separate, so that listing one does not read all."""
    return Repository(f"webhook_delivery.{webhook_id}", Delivery, lambda delivery: delivery.kept_until)


def quiet(write: DocumentWrite) -> DocumentWrite:
    """Mark a write that happens with every message and that no cached rules depend on."""
    return structs.replace(write, is_quiet=True)


class WebhookChanges(Struct, frozen=True, kw_only=True):
    """The fields to change; None leaves a field unchanged."""

    url: str | None = None
    events: tuple[str, ...] | None = None
    tasks: TaskSelection | None = None
    description: str | None = None
    is_active: bool | None = None
    why: str = ""  # reason for disabling it


class _WebhookDecision(NamedTuple):
    after: Webhook
    events: list[Event]
    more: Sequence[DocumentWrite] = ()  # written in the same transaction


async def create(
    stores: Stores,
    url: str,
    events: Sequence[str],
    *,
    actor: str | None,
    description: str = "",
    secret: str | None = None,
    reach: NetworkPolicy = PUBLIC,
    tasks: TaskSelection | None = None,
) -> Webhook:
    """Create a webhook that receives events from now on, of the selected tasks. A secret is generated unless given.

    Raises InvalidWebhook.
    """
    if len(await WEBHOOKS.all(stores)) >= MOST_WEBHOOKS:
        raise InvalidWebhook(f"there are {MOST_WEBHOOKS} webhooks already, the maximum; remove one first")
    now, since = stores.clock.now(), await stores.events.last_seq()
    new = Webhook(
        id=fresh_id(now),
        url=url,
        events=tuple(dict.fromkeys(events)),
        secrets=(Secret(value=secret or _new_secret()),),
        description=description,
        tasks=tasks or TaskSelection(),
        since=since,
        created_by=actor,
        created_at=now,
        updated_at=now,
    )
    check_webhook(new, reach)
    check_known(new.events)
    payload = about(new, origin=check_url(url, reach).origin, events=list(new.events))
    event = Event(type=WEBHOOK_CREATED, at=now, actor=actor, payload=payload)
    await stores.documents.write([WEBHOOKS.put(new.id, new, seen=0)], [event])
    return new


async def change(
    stores: Stores,
    webhook_id: str,
    changes: WebhookChanges,
    *,
    actor: str | None,
    seen: int | None = None,
    reach: NetworkPolicy = PUBLIC,
) -> Webhook:
    """Change the URL, the events, the description, or whether the webhook is active. `seen` is the version that the
    change is based on; None accepts any version.

    Messages that are being sent go to the new URL. A webhook that is enabled again receives events from now on, and its
    failure count is reset. Raises UnknownWebhook, InvalidWebhook, and StaleWrite.
    """
    check_known(changes.events or ())
    since = await stores.events.last_seq() if changes.is_active else 0

    def decide(before: Webhook, now: int) -> _WebhookDecision | None:
        after, events = _rewrite(before, changes, now, actor, reach)
        if changes.is_active is None or changes.is_active == before.is_active:
            return _WebhookDecision(after, events) if events else None
        if changes.is_active:
            check_webhook(after, reach)
            after = enabled(after, since=since, now=now)
            payload = Event(type=WEBHOOK_ENABLED, at=now, actor=actor, payload=about(after))
            return _WebhookDecision(after, [*events, payload], [HEALTH.remove(after.id)])
        after = disabled(after, changes.why, now=now)
        reason = about(after, reason=after.disabled_why)
        return _WebhookDecision(after, [*events, Event(type=WEBHOOK_DISABLED, at=now, actor=actor, payload=reason)])

    return await _rewritten(stores, webhook_id, decide, seen=seen)


def _rewrite(
    before: Webhook, changes: WebhookChanges, now: int, actor: str | None, reach: NetworkPolicy
) -> tuple[Webhook, list[Event]]:
    """Return the changed webhook and its event; the unchanged webhook and no event if nothing differs."""
    events = before.events if changes.events is None else tuple(dict.fromkeys(changes.events))
    url = before.url if changes.url is None else changes.url
    description = before.description if changes.description is None else changes.description
    tasks = before.tasks if changes.tasks is None else changes.tasks
    after = structs.replace(before, url=url, events=events, tasks=tasks, description=description, updated_at=now)
    fields = changed_fields(before, after)
    if not fields:
        return before, []
    check_webhook(after, reach)
    payload = about(after, fields=fields, origin=check_url(after.url, reach).origin, events=list(after.events))
    return after, [Event(type=WEBHOOK_CHANGED, at=now, actor=actor, payload=payload)]


async def rotate(
    stores: Stores,
    webhook_id: str,
    *,
    actor: str | None,
    secret: str | None = None,
    overlap_ms: int = USUAL_OVERLAP_MS,
) -> Webhook:
    """Give the webhook a new secret, the first of its `secrets`. Raises UnknownWebhook and InvalidWebhook."""
    value = secret or _new_secret()

    def decide(before: Webhook, now: int) -> _WebhookDecision:
        after = rotated(before, value, overlap_ms=overlap_ms, now=now)
        payload = about(after, ends_at=now + overlap_ms)
        return _WebhookDecision(after, [Event(type=WEBHOOK_ROTATED, at=now, actor=actor, payload=payload)])

    return await _rewritten(stores, webhook_id, decide)


async def disable(stores: Stores, webhook_id: str, why: str, *, actor: str | None) -> Webhook:
    """Stop sending to a webhook, including retries. Idempotent. Raises UnknownWebhook."""
    return await change(stores, webhook_id, WebhookChanges(is_active=False, why=why), actor=actor)


async def enable(stores: Stores, webhook_id: str, *, actor: str | None, reach: NetworkPolicy = PUBLIC) -> Webhook:
    """Send events from now on, and reset the failure count. Raises UnknownWebhook and InvalidWebhook."""
    return await change(stores, webhook_id, WebhookChanges(is_active=True), actor=actor, reach=reach)


async def remove(stores: Stores, webhook_id: str, *, actor: str | None) -> None:
    """Remove a webhook and its deliveries; pending messages are not sent. Raises UnknownWebhook."""

    async def step() -> None:
        stored = await find(stores, webhook_id)
        deliveries = deliveries_of(webhook_id)
        gone = [deliveries.remove(each) for each in await deliveries.all(stores)]
        event = Event(type=WEBHOOK_REMOVED, at=stores.clock.now(), actor=actor, payload=about(stored.record))
        itself = structs.replace(WEBHOOKS.remove(webhook_id), seen=stored.version)
        await stores.documents.write([itself, HEALTH.remove(webhook_id), *gone], [event])

    await decided(step)


async def send_test(stores: Stores, webhook_id: str, *, actor: str | None) -> Webhook:
    """Record a test event for a webhook. Raises UnknownWebhook, and InvalidWebhook if it is disabled."""
    webhook = (await find(stores, webhook_id)).record
    if not webhook.is_active:
        raise InvalidWebhook("the webhook is disabled, so nothing can be sent to it; enable it first")
    event = Event(type=WEBHOOK_TESTED, at=stores.clock.now(), actor=actor, payload=about(webhook))
    await stores.documents.write([], [event])
    return webhook


async def find(stores: Stores, webhook_id: str) -> StoredRecord[Webhook]:
    """Return the webhook and its version. Raises UnknownWebhook."""
    stored = await WEBHOOKS.get(stores, webhook_id)
    if stored is None:
        raise UnknownWebhook(f"no webhook {webhook_id[:60]!r} exists; the list of webhooks shows those that do")
    return stored


async def list_webhooks(stores: Stores) -> list[Webhook]:
    """Return all webhooks, oldest first."""
    return [stored.record for stored in (await WEBHOOKS.all(stores)).values()]


async def list_health(stores: Stores) -> dict[str, WebhookHealth]:
    """Return the health of each webhook that has received messages, by ID."""
    return {webhook_id: stored.record for webhook_id, stored in (await HEALTH.all(stores)).items()}


async def _rewritten(
    stores: Stores,
    webhook_id: str,
    decide: Callable[[Webhook, int], _WebhookDecision | None],
    *,
    seen: int | None = None,
) -> Webhook:
    """Read, decide, and write. Retries after a concurrent change, unless the caller named the version it saw."""

    async def step() -> Webhook:
        stored = await find(stores, webhook_id)
        if seen is not None and seen != stored.version:
            raise StaleWrite(f"the webhook {webhook_id[:60]!r} has changed since it was read; read it again")
        decision = decide(stored.record, stores.clock.now())
        if decision is None:
            return stored.record
        after, events, more = decision
        await stores.documents.write([WEBHOOKS.put(after.id, after, seen=stored.version), *more], events)
        return after

    return await (step() if seen is not None else decided(step))


def _new_secret() -> str:
    return secret_of(os.urandom(SECRET_BYTES))


def reach_of(webhooks: WebhookSettings) -> NetworkPolicy:
    """Return the network policy from the settings."""
    return NetworkPolicy(
        allow_http=webhooks.allow_http,
        ports=frozenset(webhooks.allowed_ports),
        allowed=networks_of(webhooks.allowed_networks),
        refused=networks_of(webhooks.refused_networks),
    )
