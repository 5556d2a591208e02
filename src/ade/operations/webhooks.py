"""Webhooks: whom to tell of events, and what was told."""

import re

from msgspec import structs

from ade.core.accounts.permissions import Permission
from ade.core.records import Task
from ade.core.web.forms.tasks import Nothing
from ade.core.web.forms.webhooks import ChangeWebhook, ListDeliveries, ListWebhooks, NewWebhook, RotateSecret
from ade.core.webhooks.addresses import Reach
from ade.core.webhooks.deliveries import Delivery
from ade.core.webhooks.errors import InvalidWebhook
from ade.governance.webhooks import keeping, log
from ade.insight.webhooks import WebhookView, WebhookWithSecret, see_webhook, see_webhooks
from ade.operations.acting import acting
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import cut, page, position
from ade.settings.reach import reach_of

_PLACE = re.compile(r"([0-9]{1,15})\.([0-9]{1,19})")


async def list_webhooks(office: Office, asked: Asked, query: ListWebhooks) -> Page[WebhookView]:
    return cut("webhooks", query, await see_webhooks(office.stores, with_urls=_sees_urls(asked)))


async def create_webhook(office: Office, asked: Asked, body: NewWebhook) -> WebhookWithSecret:
    made = await keeping.create(
        office.stores,
        body.url,
        body.events,
        actor=acting(asked),
        description=body.description,
        secret=body.secret,
        reach=_reach(office),
    )
    return await _with_secret(office, asked, made.id, made.secrets[0].value)


async def get_webhook(office: Office, asked: Asked, webhook_id: str) -> WebhookView:
    return await see_webhook(office.stores, webhook_id, with_url=_sees_urls(asked))


async def change_webhook(office: Office, asked: Asked, webhook_id: str, body: ChangeWebhook) -> WebhookView:
    if body.reason is not None and body.is_active is not False:
        raise InvalidWebhook("a reason is given for switching a webhook off: say is_active = false with it")
    kept = await keeping.find(office.stores, webhook_id)
    asked.check_version(kept.version)
    seen = None if asked.if_match in (None, "*") else kept.version
    changes = keeping.WebhookChanges(
        url=body.url,
        events=None if body.events is None else tuple(body.events),
        description=body.description,
        is_active=body.is_active,
        why=body.reason or "somebody disabled it",
    )
    await keeping.change(office.stores, webhook_id, changes, actor=acting(asked), seen=seen, reach=_reach(office))
    return await get_webhook(office, asked, webhook_id)


async def remove_webhook(office: Office, asked: Asked, webhook_id: str) -> None:
    await keeping.remove(office.stores, webhook_id, actor=acting(asked))


async def rotate_webhook_secret(office: Office, asked: Asked, webhook_id: str, body: RotateSecret) -> WebhookWithSecret:
    after = await keeping.rotate(
        office.stores, webhook_id, actor=acting(asked), secret=body.secret, overlap_ms=round(body.overlap_s * 1000)
    )
    return await _with_secret(office, asked, webhook_id, after.secrets[0].value)


async def test_webhook(office: Office, asked: Asked, webhook_id: str, body: Nothing) -> WebhookView:
    """It is told as of any event: through the queue, and its log shows what came of it."""
    await keeping.send_test(office.stores, webhook_id, actor=acting(asked))
    return await get_webhook(office, asked, webhook_id)


async def list_deliveries(office: Office, asked: Asked, webhook_id: str, query: ListDeliveries) -> Page[Delivery]:
    of_list, limit = f"deliveries of {webhook_id}", query.limit
    found = await log.list_deliveries(
        office.stores, webhook_id, state=query.state, before=_place(position(of_list, query)), limit=limit + 1
    )
    last = log.place_of(found[limit - 1]) if len(found) > limit else None
    return page(of_list, query, found[:limit], None if last is None else f"{last[0]}.{last[1]}")


async def get_delivery(office: Office, asked: Asked, webhook_id: str, delivery_id: str) -> Delivery:
    return (await log.find_delivery(office.stores, webhook_id, delivery_id)).record


async def replay_delivery(office: Office, asked: Asked, webhook_id: str, delivery_id: str, body: Nothing) -> Task:
    """Answers the task that sends it."""
    return await log.replay(office.stores, office.payloads, webhook_id, delivery_id, actor=acting(asked))


def _sees_urls(asked: Asked) -> bool:
    """Only who may change them."""
    return asked.caller is None or Permission.ADMINISTER in asked.caller.permissions


def _reach(office: Office) -> Reach:
    return reach_of(office.settings.webhooks)


async def _with_secret(office: Office, asked: Asked, webhook_id: str, secret: str) -> WebhookWithSecret:
    return WebhookWithSecret(**structs.asdict(await get_webhook(office, asked, webhook_id)), secret=secret)


def _place(told: int | str | None) -> log.Place | None:
    found = _PLACE.fullmatch(told) if isinstance(told, str) else None
    return None if found is None else (int(found[1]), int(found[2]))
