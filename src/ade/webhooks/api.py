"""HTTP operations on webhooks and their deliveries."""

import re
from typing import Annotated

from msgspec import Meta, structs

from ade.accounts.model import Permission
from ade.errors import InvalidWebhook
from ade.server.context import RequestContext, Services, acting, cut, page, position
from ade.server.operation import ETagUse, ReadRule, operation
from ade.server.pagination import Page
from ade.server.request_types import EventPattern, Form, HttpsUrl, Nothing, PageSize, described
from ade.tasks.model import Task
from ade.webhooks import dispatch
from ade.webhooks import service as webhooks_service
from ade.webhooks.deliveries import Delivery, DeliveryState, Place
from ade.webhooks.destinations import NetworkPolicy
from ade.webhooks.model import SelectTasks, TaskSelection
from ade.webhooks.service import reach_of
from ade.webhooks.views import WebhookView, WebhookWithSecret, view_webhook, view_webhooks

_DAY_S = 86_400.0


class ListWebhooks(Form):
    """A page of the webhooks."""

    cursor: str | None = None
    limit: PageSize = 50


def _selection(tasks: SelectTasks | None) -> TaskSelection | None:
    if tasks is None:
        return None
    chosen = (tuple(dict.fromkeys(each)) for each in (tasks.names, tasks.queues, tasks.tags, tasks.authors))
    return TaskSelection(**dict(zip(TaskSelection.__struct_fields__, chosen, strict=True)))


class NewWebhook(Form):
    """`events` are types such as `task.failed`, all of a kind as `task.*`, or `*`. A secret is made if none is told."""

    url: HttpsUrl
    events: Annotated[list[EventPattern], described(minItems=1, maxItems=50)]
    description: str = ""
    secret: str | None = None
    tasks: SelectTasks | None = None  # only events of these tasks


class ChangeWebhook(Form):
    """What is not said stays as it is."""

    url: HttpsUrl | None = None
    events: Annotated[list[EventPattern], described(minItems=1, maxItems=50)] | None = None
    description: str | None = None
    tasks: SelectTasks | None = None  # only events of these tasks; an empty selection sends all events
    is_active: bool | None = None
    reason: str | None = None  # why it is switched off


class RotateSecret(Form):
    """How long the old secret signs too: no time at all for one that has leaked. A secret is made if none is given."""

    overlap_s: Annotated[float, Meta(ge=0, le=7 * _DAY_S)] = _DAY_S
    secret: str | None = None


class ListDeliveries(Form):
    """Filter and page of the deliveries of a webhook."""

    state: DeliveryState | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50  # each has all its attempts with it


_PLACE = re.compile(r"([0-9]{1,15})\.([0-9]{1,19})")


@operation("GET /webhooks", reads=ReadRule.ALL, permission=Permission.OPERATE)
async def list_webhooks(services: Services, request: RequestContext, query: ListWebhooks) -> Page[WebhookView]:
    """Who is told about what, and how that goes."""
    return cut("webhooks", query, await view_webhooks(services.stores, with_urls=_sees_urls(request)))


@operation("POST /webhooks", permission=Permission.ADMINISTER, takes_key=False)
async def create_webhook(services: Services, request: RequestContext, body: NewWebhook) -> WebhookWithSecret:
    """Tell an address about events; its secret is shown this once."""
    made = await webhooks_service.create(
        services.stores,
        body.url,
        body.events,
        actor=acting(request),
        description=body.description,
        secret=body.secret,
        reach=_reach(services),
        tasks=_selection(body.tasks),
    )
    return await _with_secret(services, request, made.id, made.secrets[0].value)


@operation("GET /webhooks/{webhook_id}", reads=ReadRule.ALL, permission=Permission.OPERATE, tag=ETagUse.ANSWERED)
async def get_webhook(services: Services, request: RequestContext, webhook_id: str) -> WebhookView:
    """One webhook."""
    return await view_webhook(services.stores, webhook_id, with_url=_sees_urls(request))


@operation("PATCH /webhooks/{webhook_id}", permission=Permission.ADMINISTER, tag=ETagUse.REQUIRED)
async def change_webhook(
    services: Services, request: RequestContext, webhook_id: str, body: ChangeWebhook
) -> WebhookView:
    """Change address, events, or whether it is on."""
    if body.reason is not None and body.is_active is not False:
        raise InvalidWebhook("a reason requires is_active = false")
    stored = await webhooks_service.find(services.stores, webhook_id)
    seen = request.expected_version(stored.version)
    changes = webhooks_service.WebhookChanges(
        url=body.url,
        events=None if body.events is None else tuple(body.events),
        tasks=_selection(body.tasks),
        description=body.description,
        is_active=body.is_active,
        why=body.reason or "disabled manually",
    )
    await webhooks_service.change(
        services.stores, webhook_id, changes, actor=acting(request), seen=seen, reach=_reach(services)
    )
    return await get_webhook(services, request, webhook_id)


@operation("DELETE /webhooks/{webhook_id}", permission=Permission.ADMINISTER)
async def remove_webhook(services: Services, request: RequestContext, webhook_id: str) -> None:
    """Remove a webhook."""
    await webhooks_service.remove(services.stores, webhook_id, actor=acting(request))


@operation("POST /webhooks/{webhook_id}/rotate-secret", permission=Permission.ADMINISTER, takes_key=False)
async def rotate_webhook_secret(
    services: Services, request: RequestContext, webhook_id: str, body: RotateSecret
) -> WebhookWithSecret:
    """Give it a new secret; the old one ends later."""
    after = await webhooks_service.rotate(
        services.stores, webhook_id, actor=acting(request), secret=body.secret, overlap_ms=round(body.overlap_s * 1000)
    )
    return await _with_secret(services, request, webhook_id, after.secrets[0].value)


@operation("POST /webhooks/{webhook_id}/test", permission=Permission.OPERATE)
async def test_webhook(services: Services, request: RequestContext, webhook_id: str, body: Nothing) -> WebhookView:
    """Send a test event. It is delivered like any event: through the queue, and the delivery log shows the result."""
    await webhooks_service.send_test(services.stores, webhook_id, actor=acting(request))
    return await get_webhook(services, request, webhook_id)


@operation("GET /webhooks/{webhook_id}/deliveries", reads=ReadRule.ALL, permission=Permission.OPERATE)
async def list_deliveries(
    services: Services, request: RequestContext, webhook_id: str, query: ListDeliveries
) -> Page[Delivery]:
    """What was sent, and how it was answered."""
    of_list, limit = f"deliveries of {webhook_id}", query.limit
    found = await dispatch.list_deliveries(
        services.stores, webhook_id, state=query.state, before=_place(position(of_list, query)), limit=limit + 1
    )
    last = found[limit - 1].place if len(found) > limit else None
    return page(of_list, query, found[:limit], None if last is None else f"{last[0]}.{last[1]}")


@operation("GET /webhooks/{webhook_id}/deliveries/{delivery_id}", reads=ReadRule.ALL, permission=Permission.OPERATE)
async def get_delivery(services: Services, request: RequestContext, webhook_id: str, delivery_id: str) -> Delivery:
    """One delivery with its tries."""
    return (await dispatch.find_delivery(services.stores, webhook_id, delivery_id)).record


@operation("POST /webhooks/{webhook_id}/deliveries/{delivery_id}/replay", permission=Permission.OPERATE)
async def replay_delivery(
    services: Services, request: RequestContext, webhook_id: str, delivery_id: str, body: Nothing
) -> Task:
    """Send it again. Returns the task that sends it."""
    return await dispatch.replay(services.stores, services.payloads, webhook_id, delivery_id, actor=acting(request))


def _sees_urls(request: RequestContext) -> bool:
    """Return whether the caller can change webhooks, and therefore see their URLs."""
    return request.caller is None or Permission.ADMINISTER in request.caller.permissions


def _reach(services: Services) -> NetworkPolicy:
    return reach_of(services.settings.webhooks)


async def _with_secret(services: Services, request: RequestContext, webhook_id: str, secret: str) -> WebhookWithSecret:
    return WebhookWithSecret(**structs.asdict(await get_webhook(services, request, webhook_id)), secret=secret)


def _place(cursor: int | str | None) -> Place | None:
    found = _PLACE.fullmatch(cursor) if isinstance(cursor, str) else None
    return None if found is None else (int(found[1]), int(found[2]))
