"""Notifications over the operations: people manage their own channels, admins those of others, and secrets stay in."""

import msgspec
import pytest
from msgspec import Struct

from ade.errors import InvalidNotification, InvalidWebhook, NotPermitted, UnknownChannel
from ade.notifications import api
from ade.server.operation import RouteAccess, check_access
from tests.approvals.people import fresh, person
from tests.domain import (
    ROUTE_OF,
    Caller,
    Permission,
    Role,
    TooManyRequests,
    UnknownAccount,
    create_token,
    to_wire,
)
from tests.notifications.domain import ChannelKind, ChannelWithSecret, PreferencesView
from tests.server.operations import Operations

HOOK = "https://hooks.example.org/services/s3cret-s3cret-s3cret"


async def test_a_person_adds_lists_and_removes_their_own_channels(ops: Operations) -> None:
    rita = await person(ops, "rita", Role.REVIEWER)
    body = api.NewChannel(kind=ChannelKind.SLACK, target=HOOK, label="team")
    added = await api.create_channel(ops.services, await fresh(ops, "rita", "create_channel"), body)
    [listed] = (await api.list_channels(ops.services, ops.request(rita, "list_channels"), api.ListChannels())).items

    assert (listed.id, listed.target, listed.label) == (added.id, "https://hooks.example.org", "team")
    assert added.secret is None
    await api.remove_channel(ops.services, await fresh(ops, "rita", "remove_channel"), added.id)
    with pytest.raises(UnknownChannel):
        await api.remove_channel(ops.services, await fresh(ops, "rita", "remove_channel"), added.id)


async def test_only_an_admin_manages_the_channels_of_others(ops: Operations) -> None:
    rita, rob = await person(ops, "rita", Role.REVIEWER), await ops.account("rob", Role.OPERATOR)
    await person(ops, "ada", Role.ADMIN)
    theirs = api.NewChannel(kind=ChannelKind.EMAIL, target="rob@example.org", account="rita")
    with pytest.raises(NotPermitted):
        await api.create_channel(ops.services, ops.request(rob, "create_channel"), theirs)
    added = await api.create_channel(ops.services, await fresh(ops, "ada", "create_channel"), theirs)

    for who, unknown in ((rob, True), (rita, False)):
        context = ops.request(who, "remove_channel")
        if unknown:
            with pytest.raises(UnknownChannel):
                await api.remove_channel(ops.services, context, added.id)
            with pytest.raises(UnknownChannel):
                await api.test_notification(
                    ops.services, ops.request(who, "test_notification"), api.TestNotification(channel=added.id)
                )
    for operation, call in (
        ("list_channels", lambda r: api.list_channels(ops.services, r, api.ListChannels(account="rita"))),
        (
            "list_notifications",
            lambda r: api.list_notifications(ops.services, r, api.ListNotifications(account="rita")),
        ),
        (
            "change_notification_preferences",
            lambda r: api.change_notification_preferences(
                ops.services, r, api.ChangePreferences(account="rita", quiet_hours="00:00-23:59")
            ),
        ),
        (
            "get_notification",
            lambda r: api.get_notification(ops.services, r, "msg_1", api.OfAccount(account="rita")),
        ),
    ):
        with pytest.raises(NotPermitted):
            await call(ops.request(rob, operation))
    await api.remove_channel(ops.services, await fresh(ops, "rita", "remove_channel"), added.id)


async def test_secrets_are_shown_once_or_never(ops: Operations) -> None:
    rita = await person(ops, "rita", Role.REVIEWER)

    async def add(kind: ChannelKind, target: str, secret: str | None = None) -> ChannelWithSecret:
        body = api.NewChannel(kind=kind, target=target, secret=secret)
        assert "s3cret" not in repr(body)
        return await api.create_channel(ops.services, await fresh(ops, "rita", "create_channel"), body)

    signed = await add(ChannelKind.WEBHOOK, HOOK)
    answers: list[Struct] = [
        await add(ChannelKind.SLACK, HOOK),
        await add(ChannelKind.NTFY, "https://ntfy.example.org/topic", "tk_s3cret"),
        await api.list_channels(ops.services, ops.request(rita, "list_channels"), api.ListChannels()),
        await api.test_notification(ops.services, ops.request(rita, "test_notification"), api.TestNotification()),
        await api.list_notifications(ops.services, ops.request(rita, "list_notifications"), api.ListNotifications()),
    ]
    text = "".join(msgspec.json.encode(to_wire(each)).decode() for each in answers)
    secret = msgspec.json.decode(msgspec.json.encode(to_wire(signed)))["secret"]
    assert secret.startswith("whsec_")
    assert secret not in text + repr(signed)
    assert "s3cret" not in text
    events = repr(await ops.services.stores.events.read(0, 1_000))
    assert "s3cret" not in events
    assert secret not in events


async def test_invalid_channels_change_nothing(ops: Operations) -> None:
    rita = await person(ops, "rita", Role.REVIEWER)
    await ops.account("bot", Role.AGENT, owner="rita")
    ada = await person(ops, "ada", Role.ADMIN)
    for who, kind, target, account, error in (
        (rita, ChannelKind.EMAIL, "nobody", None, InvalidNotification),
        (rita, ChannelKind.SLACK, "https://10.0.0.1/x", None, InvalidWebhook),
        (ada, ChannelKind.EMAIL, "x@example.org", "bot", InvalidNotification),
        (ada, ChannelKind.EMAIL, "x@example.org", "nobody", UnknownAccount),
    ):
        body = api.NewChannel(kind=kind, target=target, account=account)
        with pytest.raises(error):
            await api.create_channel(ops.services, await fresh(ops, who.id, "create_channel"), body)
    for number in range(11):
        body = api.NewChannel(kind=ChannelKind.EMAIL, target=f"rita{number}@example.org")
        context = await fresh(ops, "rita", "create_channel")
        if number < 10:
            await api.create_channel(ops.services, context, body)
        else:
            with pytest.raises(InvalidNotification, match="at most 10"):
                await api.create_channel(ops.services, context, body)
    found = await api.list_channels(ops.services, ops.request(rita, "list_channels"), api.ListChannels(limit=500))
    assert len(found.items) == 10


async def test_preferences_are_changed_field_by_field(ops: Operations) -> None:
    await person(ops, "rita", Role.REVIEWER)

    async def change(**fields: object) -> PreferencesView:
        body = api.ChangePreferences(**fields)  # type: ignore[arg-type]
        context = await fresh(ops, "rita", "change_notification_preferences")
        return await api.change_notification_preferences(ops.services, context, body)

    await change(time_zone="Europe/Berlin", quiet_hours="22:00-07:00")
    await change(digest_every_s=3_600)
    view = await change(digest_at=["09:00", "16:00"])
    assert msgspec.to_builtins(to_wire(view)) == {
        "account": "rita",
        "time_zone": "Europe/Berlin",
        "quiet_hours": "22:00-07:00",
        "break_through": "critical",
        "digest_every_s": 0,
        "digest_at": ["09:00", "16:00"],
        "channels": 0,
        "pending": 0,
    }
    for wrong in ({"quiet_hours": "22:00"}, {"quiet_hours": "late-early"}, {"time_zone": "Nowhere"}):
        with pytest.raises(InvalidNotification):
            await change(**wrong)
    assert msgspec.to_builtins(to_wire(await change(quiet_hours="")))["quiet_hours"] == ""


async def test_tests_are_limited_so_that_no_one_can_flood_an_address(ops: Operations) -> None:
    rita = await person(ops, "rita", Role.REVIEWER)
    body = api.NewChannel(kind=ChannelKind.EMAIL, target="victim@example.org")
    await api.create_channel(ops.services, await fresh(ops, "rita", "create_channel"), body)
    context = ops.request(rita, "test_notification")
    for _ in range(10):
        await api.test_notification(ops.services, context, api.TestNotification())
    with pytest.raises(TooManyRequests):
        await api.test_notification(ops.services, context, api.TestNotification())


async def test_a_test_of_all_channels_counts_as_often_as_there_are_channels(ops: Operations) -> None:
    rita = await person(ops, "rita", Role.REVIEWER)
    for number in range(10):
        body = api.NewChannel(kind=ChannelKind.EMAIL, target=f"victim+{number}@example.org")
        await api.create_channel(ops.services, await fresh(ops, "rita", "create_channel"), body)
    context = ops.request(rita, "test_notification")
    sent = await api.test_notification(ops.services, context, api.TestNotification())
    assert len(sent.items) == 10
    with pytest.raises(TooManyRequests):
        await api.test_notification(ops.services, context, api.TestNotification())


async def test_the_log_is_paged(ops: Operations) -> None:
    rita = await person(ops, "rita", Role.REVIEWER)
    body = api.NewChannel(kind=ChannelKind.EMAIL, target="rita@example.org")
    await api.create_channel(ops.services, await fresh(ops, "rita", "create_channel"), body)
    sent = []
    for _ in range(5):
        context = ops.request(rita, "test_notification")
        started = await api.test_notification(ops.services, context, api.TestNotification())
        sent += [each.delivery for each in started.items]
        ops.clock.advance(1)
    found, cursor = list[str](), None
    while True:
        query = api.ListNotifications(limit=2, cursor=cursor)
        page = await api.list_notifications(ops.services, ops.request(rita, "list_notifications"), query)
        found += [each.id for each in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert found == sent[::-1]


@pytest.mark.parametrize(
    "operation", ["create_channel", "remove_channel", "change_notification_preferences", "test_notification"]
)
async def test_a_stolen_token_that_can_only_read_turns_nothing_off(ops: Operations, operation: str) -> None:
    rita = await person(ops, "rita", Role.REVIEWER)
    _, token = await create_token(ops.services.stores, "rita", scopes=frozenset({Permission.READ}), lasts_ms=60_000)
    with pytest.raises(NotPermitted, match="does not have the scope"):
        check_access(ROUTE_OF[operation], Caller(user=rita, token=token))
    assert check_access(ROUTE_OF["list_channels"], Caller(user=rita, token=token)) is RouteAccess.OWN
