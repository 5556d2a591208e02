"""Webhooks: whom to tell of events, and what was told."""

import re
from typing import Annotated

from msgspec import Meta, structs

from ade.accounts.model import Permission
from ade.errors import InvalidWebhook
from ade.server.operations import RequestContext, Services, acting, cut, page, position
from ade.server.pagination import Page
from ade.server.request_types import EventPattern, Form, HttpsUrl, Nothing, PageSize, described
from ade.tasks.model import Task
from ade.webhooks import delivery
from ade.webhooks import service as webhooks_service
from ade.webhooks.deliveries import Delivery, DeliveryState
from ade.webhooks.destinations import NetworkPolicy
from ade.webhooks.service import reach_of
from ade.webhooks.views import WebhookView, WebhookWithSecret, view_webhook, view_webhooks

# What is said about webhooks.


_DAY_S = 86_400.0


class ListWebhooks(Form):
    cursor: str | None = None
    limit: PageSize = 50


class NewWebhook(Form):
    """`events` are types such as `task.failed`, all of a kind as `task.*`, or `*`. A secret is made if none is told."""

    url: HttpsUrl
    events: Annotated[list[EventPattern], described(minItems=1, maxItems=50)]
    description: str = ""
    secret: str | None = None


class ChangeWebhook(Form):
    """What is not said stays as it is."""

    url: HttpsUrl | None = None
    events: Annotated[list[EventPattern], described(minItems=1, maxItems=50)] | None = None
    description: str | None = None
    is_active: bool | None = None
    reason: str | None = None  # why it is switched off


class RotateSecret(Form):
    """How long the old secret signs too: no time at all for one that has leaked. A secret is made if none is given."""

    overlap_s: Annotated[float, Meta(ge=0, le=7 * _DAY_S)] = _DAY_S
    secret: str | None = None


class ListDeliveries(Form):
    state: DeliveryState | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50  # each has all its attempts with it


_PLACE = re.compile(r"([0-9]{1,15})\.([0-9]{1,19})")


async def list_webhooks(office: Services, asked: RequestContext, query: ListWebhooks) -> Page[WebhookView]:
    return cut("webhooks", query, await view_webhooks(office.stores, with_urls=_sees_urls(asked)))


async def create_webhook(office: Services, asked: RequestContext, body: NewWebhook) -> WebhookWithSecret:
    made = await webhooks_service.create(
        office.stores,
        body.url,
        body.events,
        actor=acting(asked),
        description=body.description,
        secret=body.secret,
        reach=_reach(office),
    )
    return await _with_secret(office, asked, made.id, made.secrets[0].value)


async def get_webhook(office: Services, asked: RequestContext, webhook_id: str) -> WebhookView:
    return await view_webhook(office.stores, webhook_id, with_url=_sees_urls(asked))


async def change_webhook(office: Services, asked: RequestContext, webhook_id: str, body: ChangeWebhook) -> WebhookView:
    if body.reason is not None and body.is_active is not False:
        raise InvalidWebhook("a reason is given for switching a webhook off: say is_active = false with it")
    kept = await webhooks_service.find(office.stores, webhook_id)
    asked.check_version(kept.version)
    seen = None if asked.if_match in (None, "*") else kept.version
    changes = webhooks_service.WebhookChanges(
        url=body.url,
        events=None if body.events is None else tuple(body.events),
        description=body.description,
        is_active=body.is_active,
        why=body.reason or "somebody disabled it",
    )
    await webhooks_service.change(
        office.stores, webhook_id, changes, actor=acting(asked), seen=seen, reach=_reach(office)
    )
    return await get_webhook(office, asked, webhook_id)


async def remove_webhook(office: Services, asked: RequestContext, webhook_id: str) -> None:
    await webhooks_service.remove(office.stores, webhook_id, actor=acting(asked))


async def rotate_webhook_secret(
    office: Services, asked: RequestContext, webhook_id: str, body: RotateSecret
) -> WebhookWithSecret:
    after = await webhooks_service.rotate(
        office.stores, webhook_id, actor=acting(asked), secret=body.secret, overlap_ms=round(body.overlap_s * 1000)
    )
    return await _with_secret(office, asked, webhook_id, after.secrets[0].value)


async def test_webhook(office: Services, asked: RequestContext, webhook_id: str, body: Nothing) -> WebhookView:
    """It is told as of any event: through the queue, and its log shows what came of it."""
    await webhooks_service.send_test(office.stores, webhook_id, actor=acting(asked))
    return await get_webhook(office, asked, webhook_id)


async def list_deliveries(
    office: Services, asked: RequestContext, webhook_id: str, query: ListDeliveries
) -> Page[Delivery]:
    of_list, limit = f"deliveries of {webhook_id}", query.limit
    found = await delivery.list_deliveries(
        office.stores, webhook_id, state=query.state, before=_place(position(of_list, query)), limit=limit + 1
    )
    last = delivery.place_of(found[limit - 1]) if len(found) > limit else None
    return page(of_list, query, found[:limit], None if last is None else f"{last[0]}.{last[1]}")


async def get_delivery(office: Services, asked: RequestContext, webhook_id: str, delivery_id: str) -> Delivery:
    return (await delivery.find_delivery(office.stores, webhook_id, delivery_id)).record


async def replay_delivery(
    office: Services, asked: RequestContext, webhook_id: str, delivery_id: str, body: Nothing
) -> Task:
    """Answers the task that sends it."""
    return await delivery.replay(office.stores, office.payloads, webhook_id, delivery_id, actor=acting(asked))


def _sees_urls(asked: RequestContext) -> bool:
    """Only who may change them."""
    return asked.caller is None or Permission.ADMINISTER in asked.caller.permissions


def _reach(office: Services) -> NetworkPolicy:
    return reach_of(office.settings.webhooks)


async def _with_secret(office: Services, asked: RequestContext, webhook_id: str, secret: str) -> WebhookWithSecret:
    return WebhookWithSecret(**structs.asdict(await get_webhook(office, asked, webhook_id)), secret=secret)


def _place(told: int | str | None) -> delivery.Place | None:
    found = _PLACE.fullmatch(told) if isinstance(told, str) else None
    return None if found is None else (int(found[1]), int(found[2]))
