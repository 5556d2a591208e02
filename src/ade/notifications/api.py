"""HTTP operations on notification channels, preferences, tests, and the delivery log.

Every person manages their own channels, and only admins those of others. Changes require a fresh session, so that a
stolen token cannot turn notifications off.
"""

import re
from typing import Annotated

from msgspec import Meta, Struct, structs

from ade.accounts.model import Permission
from ade.errors import NotPermitted
from ade.notifications import service
from ade.notifications.model import (
    BreakThrough,
    Channel,
    ChannelKind,
    ChannelView,
    ChannelWithSecret,
    NotificationDelivery,
    Outbox,
    Preferences,
    PreferencesView,
)
from ade.server.context import (
    RequestContext,
    Services,
    account_id,
    acting,
    check_own,
    cut,
    page,
    position,
    require_fresh_session,
)
from ade.server.operation import ReadRule, RouteAccess, operation
from ade.server.pagination import Page
from ade.server.request_types import AccountName, Form, PageSize, SecretForm
from ade.webhooks.deliveries import DeliveryState, Place, WebhookHealth
from ade.webhooks.destinations import origin_of
from ade.webhooks.service import HEALTH, reach_of

# A stolen token that can only read must not turn notifications off. Admins manage the channels of viewers.
_OWN = (Permission.ENQUEUE, Permission.OPERATE, Permission.VOTE)
_TimeOfDay = Annotated[str, Meta(max_length=5)]


class OfAccount(Form):
    """The person; the caller by default."""

    account: AccountName | None = None


class ListChannels(OfAccount):
    """A page of the channels of a person."""

    cursor: str | None = None
    limit: PageSize = 50


class NewChannel(SecretForm):
    """`target` is an email address, or the URL of an incoming webhook or of an ntfy topic. `secret` is the access token
    of an ntfy topic, or the secret that signs messages of kind webhook; one is created if it is omitted."""

    kind: ChannelKind
    target: Annotated[str, Meta(min_length=1, max_length=2_000)]
    label: str = ""
    secret: Annotated[str, Meta(max_length=200)] | None = None
    account: AccountName | None = None


class ChangePreferences(OfAccount):
    """Omitted fields stay unchanged. `quiet_hours` is a range such as 22:00-07:00, or empty for none. A digest has an
    interval or times of day; 0 and an empty list turn it off."""

    time_zone: Annotated[str, Meta(max_length=100)] | None = None
    quiet_hours: Annotated[str, Meta(max_length=11)] | None = None
    break_through: BreakThrough | None = None
    digest_every_s: Annotated[int, Meta(ge=0, le=604_800)] | None = None
    digest_at: Annotated[list[_TimeOfDay], Meta(max_length=24)] | None = None


class TestNotification(OfAccount):
    """To one channel, or to all active channels of the person."""

    __test__ = False  # not a test class

    channel: str | None = None


class ListNotifications(OfAccount):
    """Filter and page of the delivery log of a person."""

    state: DeliveryState | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50


class SentTest(Struct, frozen=True, kw_only=True):
    """A test message, and the task that sends it."""

    account: str
    delivery: str
    channel: str
    kind: ChannelKind
    task_id: str


class SentTests(Struct, frozen=True, kw_only=True):
    """The test messages that were enqueued."""

    items: list[SentTest]


_PLACE = re.compile(r"([0-9]{1,15})\.([0-9]{1,19})")


@operation("GET /notifications/channels", reads=ReadRule.OWN, permission=Permission.READ, others=Permission.ADMINISTER)
async def list_channels(services: Services, request: RequestContext, query: ListChannels) -> Page[ChannelView]:
    """The channels of a person, without the secret parts of URLs."""
    account = _person(request, query.account)
    preferences = await service.get_preferences(services.stores, account)
    health = await HEALTH.each(services.stores, [channel.id for channel in preferences.channels])
    views = [
        _view_channel(account, channel, None if found is None else found.record)
        for channel, found in zip(preferences.channels, health, strict=True)
    ]
    return cut(f"channels of {account}", query, views)


@operation("POST /notifications/channels", permission=_OWN, others=Permission.ADMINISTER, takes_key=False)
async def create_channel(services: Services, request: RequestContext, body: NewChannel) -> ChannelWithSecret:
    """Notify a person through another channel from now on, in a session with a recent password check. A secret that
    was created is shown only once."""
    account = _person(request, body.account)
    require_fresh_session(services, request)
    channel = await service.add_channel(
        services.stores,
        account,
        body.kind,
        body.target,
        actor=acting(request),
        label=body.label,
        secret=body.secret,
        reach=reach_of(services.settings.webhooks),
    )
    secret = channel.secret if channel.kind is ChannelKind.WEBHOOK and body.secret is None else None
    return ChannelWithSecret(**structs.asdict(_view_channel(account, channel, None)), secret=secret)


@operation("DELETE /notifications/channels/{channel_id}", permission=_OWN, others=Permission.ADMINISTER)
async def remove_channel(services: Services, request: RequestContext, channel_id: str) -> None:
    """Remove a channel, in a session with a recent password check. For a week it receives changes of the account, and
    nothing else."""
    account = await _owner(services, request, channel_id)
    require_fresh_session(services, request)
    await service.remove_channel(services.stores, channel_id, account=account, actor=acting(request))


@operation(
    "GET /notifications/preferences", reads=ReadRule.OWN, permission=Permission.READ, others=Permission.ADMINISTER
)
async def get_notification_preferences(
    services: Services, request: RequestContext, query: OfAccount
) -> PreferencesView:
    """When a person is notified: time zone, quiet hours, and digest."""
    return await _preferences(services, _person(request, query.account))


@operation("PATCH /notifications/preferences", permission=_OWN, others=Permission.ADMINISTER)
async def change_notification_preferences(
    services: Services, request: RequestContext, body: ChangePreferences
) -> PreferencesView:
    """Change when a person is notified, in a session with a recent password check."""
    account = _person(request, body.account)
    require_fresh_session(services, request)
    changes = service.PreferenceChanges(
        time_zone=body.time_zone,
        quiet_hours=body.quiet_hours,
        break_through=body.break_through,
        digest_every_s=body.digest_every_s,
        digest_at=None if body.digest_at is None else tuple(body.digest_at),
    )
    await service.change_preferences(services.stores, account, changes, actor=acting(request))
    return await _preferences(services, account)


@operation("POST /notifications/test", permission=_OWN, others=Permission.ADMINISTER, takes_key=False)
async def test_notification(services: Services, request: RequestContext, body: TestNotification) -> SentTests:
    """Send a test message. A worker sends it once, and the delivery log shows the result."""
    account = _person(request, body.account) if body.channel is None else await _owner(services, request, body.channel)
    sent = await service.send_test(
        services.stores, services.payloads, account, channel_id=body.channel, actor=acting(request)
    )
    items = [
        SentTest(account=account, delivery=each.id, channel=each.channel, kind=each.kind, task_id=task.id)
        for each, task in sent
    ]
    return SentTests(items=items)


@operation(
    "GET /notifications/deliveries", reads=ReadRule.OWN, permission=Permission.READ, others=Permission.ADMINISTER
)
async def list_notifications(
    services: Services, request: RequestContext, query: ListNotifications
) -> Page[NotificationDelivery]:
    """The messages to a person, newest first, with every attempt to send them."""
    account, limit = _person(request, query.account), query.limit
    of_list = f"notifications of {account}"
    found = await service.list_deliveries(
        services.stores, account, state=query.state, before=_place(position(of_list, query)), limit=limit + 1
    )
    last = found[limit - 1].place if len(found) > limit else None
    return page(of_list, query, found[:limit], None if last is None else f"{last[0]}.{last[1]}")


@operation(
    "GET /notifications/deliveries/{delivery_id}",
    reads=ReadRule.OWN,
    permission=Permission.READ,
    others=Permission.ADMINISTER,
)
async def get_notification(
    services: Services, request: RequestContext, delivery_id: str, query: OfAccount
) -> NotificationDelivery:
    """One message to a person, with every attempt to send it."""
    return await service.find_delivery(services.stores, _person(request, query.account), delivery_id)


def _person(request: RequestContext, name: str | None) -> str:
    """Return the account to act on. Raises NotPermitted for another account, unless the caller is an admin."""
    own = acting(request)
    account = own if name is None else account_id(name)
    if account != own and request.access is RouteAccess.OWN:
        raise NotPermitted(f"{own} can manage only its own notifications, not those of {account}")
    return account


async def _owner(services: Services, request: RequestContext, channel_id: str) -> str:
    """Return the account of a channel. A channel of another account is reported as not found."""
    account = await service.owner_of(services.stores, channel_id)
    if request.access is RouteAccess.OWN:
        await check_own(services, request, account, service.unknown_channel(channel_id))
    return account


async def _preferences(services: Services, account: str) -> PreferencesView:
    outbox = await service.OUTBOX.get(services.stores, account)
    preferences = await service.get_preferences(services.stores, account)
    return _view_preferences(preferences, None if outbox is None else outbox.record)


def _place(cursor: int | str | None) -> Place | None:
    found = _PLACE.fullmatch(cursor) if isinstance(cursor, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def _view_channel(account: str, channel: Channel, health: WebhookHealth | None) -> ChannelView:
    return ChannelView(
        id=channel.id,
        account=account,
        kind=channel.kind,
        target=channel.target if channel.kind is ChannelKind.EMAIL else origin_of(channel.target),
        label=channel.label,
        is_active=channel.is_active,
        disabled_at=channel.disabled_at,
        disabled_why=channel.disabled_why,
        created_by=channel.created_by,
        created_at=channel.created_at,
        health=health or WebhookHealth(),
    )


def _view_preferences(preferences: Preferences, outbox: Outbox | None) -> PreferencesView:
    quiet = f"{preferences.quiet_from}-{preferences.quiet_to}" if preferences.quiet_from else ""
    return PreferencesView(
        account=preferences.account,
        time_zone=preferences.time_zone,
        quiet_hours=quiet,
        break_through=preferences.break_through,
        digest_every_s=preferences.digest_every_s,
        digest_at=preferences.digest_at,
        channels=len(preferences.channels),
        pending=0 if outbox is None else len(outbox.pending) + outbox.more,
    )
