"""Webhooks in the store: made, changed and removed as a whole, each time with an event in the same write.

Whoever calls has checked the permission (ADMINISTER: a webhook carries facts out of the house). Records hold secrets in
plain text, because messages are signed with them: front ends show `Webhook` without `secrets`, and a secret only to
whoever has just made it.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from ade.errors import InvalidWebhook, StaleWrite, UnknownWebhook
from ade.events.model import Event
from ade.settings.sections import WebhookSettings
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord, decided
from ade.stores.resource_ports import DocumentWrite
from ade.tasks.identifiers import KIND, uuid7
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

# Where webhooks, how they fare, and their deliveries are kept.


WEBHOOKS = Repository(KIND, Webhook)
HEALTH = Repository("webhook_health", WebhookHealth)


def deliveries_of(webhook_id: str) -> Repository[Delivery]:
    """A kind of their own for each webhook, so that nobody reads those of all when he wants those of one."""
    return Repository(f"webhook_delivery.{webhook_id}", Delivery, lambda delivery: delivery.kept_until)


def quiet(write: DocumentWrite) -> DocumentWrite:
    """For what changes with every message: nobody's rules depend on it."""
    return structs.replace(write, is_quiet=True)


class WebhookChanges(Struct, frozen=True, kw_only=True):
    """What shall be different; None leaves it as it is."""

    url: str | None = None
    events: tuple[str, ...] | None = None
    description: str | None = None
    is_active: bool | None = None
    why: str = ""  # it is switched off


class _WebhookDecision(NamedTuple):
    after: Webhook
    events: list[Event]
    more: Sequence[DocumentWrite] = ()  # to be written together with it


async def create(
    stores: Stores,
    url: str,
    events: Sequence[str],
    *,
    actor: str | None,
    description: str = "",
    secret: str | None = None,
    reach: NetworkPolicy = PUBLIC,
) -> Webhook:
    """A new webhook, told of all that happens from now on. Its secret is made here unless one is brought along.

    Raises InvalidWebhook.
    """
    if len(await WEBHOOKS.all(stores)) >= MOST_WEBHOOKS:
        raise InvalidWebhook(f"there are {MOST_WEBHOOKS} webhooks already, and more there may not be; remove one first")
    now, since = stores.clock.now(), await stores.events.last_seq()
    new = Webhook(
        id=uuid7(now, os.urandom(10)),
        url=url,
        events=tuple(dict.fromkeys(events)),
        secrets=(Secret(value=secret or _new_secret()),),
        description=description,
        since=since,
        created_by=actor,
        created_at=now,
        updated_at=now,
    )
    check_webhook(new, reach)
    check_known(new.events)
    told = about(new, origin=check_url(url, reach).origin, events=list(new.events))
    event = Event(type=WEBHOOK_CREATED, at=now, actor=actor, payload=told)
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
    """Say anew where it is, what it wants, and whether it is told at all. `seen` is the version this was decided on;
    None: whichever there is.

    Messages on their way go to the new URL. One that is switched on again is told of what happens from now on, as if
    nothing had failed. Raises UnknownWebhook, InvalidWebhook and StaleWrite.
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
            told = Event(type=WEBHOOK_ENABLED, at=now, actor=actor, payload=about(after))
            return _WebhookDecision(after, [*events, told], [HEALTH.remove(after.id)])
        after = disabled(after, changes.why, now=now)
        reason = about(after, reason=after.disabled_why)
        return _WebhookDecision(after, [*events, Event(type=WEBHOOK_DISABLED, at=now, actor=actor, payload=reason)])

    return await _rewritten(stores, webhook_id, decide, seen=seen)


def _rewrite(
    before: Webhook, changes: WebhookChanges, now: int, actor: str | None, reach: NetworkPolicy
) -> tuple[Webhook, list[Event]]:
    """What is said of it otherwise, and the event that tells of that; the same and none if nothing is different."""
    events = before.events if changes.events is None else tuple(dict.fromkeys(changes.events))
    url = before.url if changes.url is None else changes.url
    description = before.description if changes.description is None else changes.description
    after = structs.replace(before, url=url, events=events, description=description, updated_at=now)
    fields = changed_fields(before, after)
    if not fields:
        return before, []
    check_webhook(after, reach)
    told = about(after, fields=fields, origin=check_url(after.url, reach).origin, events=list(after.events))
    return after, [Event(type=WEBHOOK_CHANGED, at=now, actor=actor, payload=told)]


async def rotate(
    stores: Stores,
    webhook_id: str,
    *,
    actor: str | None,
    secret: str | None = None,
    overlap_ms: int = USUAL_OVERLAP_MS,
) -> Webhook:
    """Give it a new secret, which is the first of its `secrets`. Raises UnknownWebhook and InvalidWebhook."""
    value = secret or _new_secret()

    def decide(before: Webhook, now: int) -> _WebhookDecision:
        after = rotated(before, value, overlap_ms=overlap_ms, now=now)
        told = about(after, ends_at=now + overlap_ms)
        return _WebhookDecision(after, [Event(type=WEBHOOK_ROTATED, at=now, actor=actor, payload=told)])

    return await _rewritten(stores, webhook_id, decide)


async def disable(stores: Stores, webhook_id: str, why: str, *, actor: str | None) -> Webhook:
    """Send it nothing more, not even what is on its way; again it changes nothing. Raises UnknownWebhook."""
    return await change(stores, webhook_id, WebhookChanges(is_active=False, why=why), actor=actor)


async def enable(stores: Stores, webhook_id: str, *, actor: str | None, reach: NetworkPolicy = PUBLIC) -> Webhook:
    """Tell it again of what happens from now on, as if nothing had failed. Raises UnknownWebhook, InvalidWebhook."""
    return await change(stores, webhook_id, WebhookChanges(is_active=True), actor=actor, reach=reach)


async def remove(stores: Stores, webhook_id: str, *, actor: str | None) -> None:
    """Forget it with all its deliveries; what is on its way is not sent. Raises UnknownWebhook."""

    async def step() -> None:
        kept = await find(stores, webhook_id)
        shelf = deliveries_of(webhook_id)
        gone = [shelf.remove(each) for each in await shelf.all(stores)]
        event = Event(type=WEBHOOK_REMOVED, at=stores.clock.now(), actor=actor, payload=about(kept.record))
        itself = structs.replace(WEBHOOKS.remove(webhook_id), seen=kept.version)
        await stores.documents.write([itself, HEALTH.remove(webhook_id), *gone], [event])

    await decided(step)


async def send_test(stores: Stores, webhook_id: str, *, actor: str | None) -> Webhook:
    """Let it be told of an event that means nothing else. Raises UnknownWebhook; InvalidWebhook for a disabled one."""
    webhook = (await find(stores, webhook_id)).record
    if not webhook.is_active:
        raise InvalidWebhook("the webhook is disabled, so nothing can be sent to it; enable it first")
    event = Event(type=WEBHOOK_TESTED, at=stores.clock.now(), actor=actor, payload=about(webhook))
    await stores.documents.write([], [event])
    return webhook


async def find(stores: Stores, webhook_id: str) -> StoredRecord[Webhook]:
    """The webhook and its version, for whoever shows or changes it. Raises UnknownWebhook."""
    kept = await WEBHOOKS.get(stores, webhook_id)
    if kept is None:
        raise UnknownWebhook(f"no webhook {webhook_id[:60]!r} exists; the list of webhooks shows those that do")
    return kept


async def list_webhooks(stores: Stores) -> list[Webhook]:
    """All of them, the oldest first."""
    return [kept.record for kept in (await WEBHOOKS.all(stores)).values()]


async def list_health(stores: Stores) -> dict[str, WebhookHealth]:
    """How each fares that was sent something, by id."""
    return {webhook_id: kept.record for webhook_id, kept in (await HEALTH.all(stores)).items()}


async def _rewritten(
    stores: Stores,
    webhook_id: str,
    decide: Callable[[Webhook, int], _WebhookDecision | None],
    *,
    seen: int | None = None,
) -> Webhook:
    """Read, decide and write, again whenever somebody else was faster; not where the caller names what he saw."""

    async def step() -> Webhook:
        kept = await find(stores, webhook_id)
        if seen is not None and seen != kept.version:
            raise StaleWrite(f"the webhook {webhook_id[:60]!r} has changed since it was read; read it again")
        decision = decide(kept.record, stores.clock.now())
        if decision is None:
            return kept.record
        after, events, more = decision
        await stores.documents.write([WEBHOOKS.put(after.id, after, seen=kept.version), *more], events)
        return after

    tried: Callable[[], Awaitable[Webhook]] = step
    return await (tried() if seen is not None else decided(tried))


def _new_secret() -> str:
    return secret_of(os.urandom(SECRET_BYTES))


# What webhooks may reach, as the settings have it.


def reach_of(webhooks: WebhookSettings) -> NetworkPolicy:
    return NetworkPolicy(
        allow_http=webhooks.allow_http,
        ports=frozenset(webhooks.allowed_ports),
        allowed=networks_of(webhooks.allowed_networks),
        refused=networks_of(webhooks.refused_networks),
    )
