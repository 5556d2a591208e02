"""Webhooks over the operations: secrets are shown once, addresses are checked, and nobody writes over another."""

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from ade import Status
from ade.errors import InvalidWebhook, NotPermitted, StaleWrite, UnknownWebhook
from ade.server.request_types import Nothing
from ade.webhooks import api as webhooks_api
from ade.webhooks import service as webhooks_service
from ade.webhooks.api import ChangeWebhook, ListDeliveries, ListWebhooks, NewWebhook, RotateSecret
from ade.webhooks.deliveries import DeliveryResponse, DeliveryState, DeliveryTaskArguments
from ade.webhooks.dispatch import deliver, follow
from ade.webhooks.model import SelectTasks, TaskSelection
from ade.webhooks.signatures import key_of
from ade.webhooks.views import WebhookWithSecret
from tests.domain import DELIVER, RequestRefused, Role, TaskQuery, to_wire
from tests.server.operations import LOCAL, Operations
from tests.stores.interleaved_writes import meanwhile
from tests.webhooks.conftest import BROKEN, Network

URL = "https://hooks.example.org/s3cret-path?token=abcdefghijklmnop"
NEW = NewWebhook(url=URL, events=["task.*"], description="for the team")
ABSENT = "019aaaaa-aaaa-7aaa-8aaa-aaaaaaaaaaaa"


async def made(ops: Operations) -> WebhookWithSecret:
    return await webhooks_api.create_webhook(ops.services, LOCAL, NEW)


async def sent(ops: Operations, *answers: DeliveryResponse) -> None:
    """Whatever is to be sent goes out."""
    services, network = ops.services, Network(*answers)
    await follow(services.stores, services.payloads)
    orders = await services.stores.tasks.find(TaskQuery(queue="webhooks", oldest_first=True, limit=100))
    for task in orders.tasks:
        order = msgspec.json.decode(task.args, type=DeliveryTaskArguments)
        await deliver(services.stores, network, order, attempt=1, randomness=0.5)
        ops.clock.advance(1)


async def test_its_secret_is_shown_once_and_never_again(ops: Operations) -> None:
    webhook = await made(ops)
    assert len(key_of(webhook.secret)) == 32
    rotated = await webhooks_api.rotate_webhook_secret(ops.services, LOCAL, webhook.id, RotateSecret(overlap_s=60))
    assert rotated.secret != webhook.secret
    assert (rotated.old_secrets, rotated.old_secrets_end_at) == (1, ops.clock.now() + 60_000)

    shown = [
        await webhooks_api.get_webhook(ops.services, LOCAL, webhook.id),
        await webhooks_api.list_webhooks(ops.services, LOCAL, ListWebhooks()),
        await webhooks_api.change_webhook(ops.services, LOCAL, webhook.id, ChangeWebhook(description="x")),
        await webhooks_api.test_webhook(ops.services, LOCAL, webhook.id, Nothing()),
    ]
    text = "".join(msgspec.json.encode(to_wire(each)).decode() for each in shown)
    assert URL in text
    for secret in (webhook.secret, rotated.secret):
        assert secret not in text
        assert secret not in repr(webhook) + repr(rotated)
    assert "whsec_" in msgspec.json.encode(to_wire(webhook)).decode()


async def test_only_who_may_change_it_sees_its_path(ops: Operations) -> None:
    webhook = await made(ops)
    operator, root = await ops.account("olga"), await ops.account("root", Role.ADMIN)
    seen = await webhooks_api.get_webhook(ops.services, ops.request(operator, "get_webhook"), webhook.id)
    assert (seen.url, seen.origin) == (None, "https://hooks.example.org")
    [listed] = (
        await webhooks_api.list_webhooks(ops.services, ops.request(operator, "list_webhooks"), ListWebhooks())
    ).items
    assert listed == seen
    seen = await webhooks_api.get_webhook(ops.services, ops.request(root, "get_webhook"), webhook.id)
    assert seen.url == URL


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://0x7f000001/",
        "https://10.0.0.7/",
        "https://169.254.169.254/latest",
        "https://localhost/",
        "https://me:secret@example.org/",
        "https://example.org:25/",
        "file:///etc/passwd",
        "",
    ],
)
async def test_nothing_inside_can_be_its_address(ops: Operations, url: str) -> None:
    with pytest.raises(InvalidWebhook):
        await webhooks_api.create_webhook(ops.services, LOCAL, NewWebhook(url=url, events=["*"]))
    webhook = await made(ops)
    with pytest.raises(InvalidWebhook):
        await webhooks_api.change_webhook(ops.services, LOCAL, webhook.id, ChangeWebhook(url=url))
    [kept] = await webhooks_service.list_webhooks(ops.services.stores)
    assert kept.url == URL


async def test_other_nonsense_stores_nothing(ops: Operations) -> None:
    for new in (
        NewWebhook(url=URL, events=[]),
        NewWebhook(url=URL, events=["no such type"]),
        NewWebhook(url=URL, events=["task.*"] * 2 + [f"a.b{n}" for n in range(50)]),
        NewWebhook(url=URL, events=["*"], secret="whsec_short"),
        NewWebhook(url=URL, events=["*"], description="\n"),
    ):
        with pytest.raises(InvalidWebhook):
            await webhooks_api.create_webhook(ops.services, LOCAL, new)
    assert (await webhooks_api.list_webhooks(ops.services, LOCAL, ListWebhooks())).items == []
    assert [e.type for e in await ops.services.stores.events.read(0, 100) if e.type.startswith("webhook.")] == []


async def test_it_is_changed_by_who_has_seen_it_as_it_is(ops: Operations) -> None:
    root = await ops.account("root", Role.ADMIN)
    webhook = await made(ops)
    with pytest.raises(RequestRefused):  # 428
        await webhooks_api.change_webhook(
            ops.services,
            ops.request(root, "change_webhook", tag_required=True),
            webhook.id,
            ChangeWebhook(events=["*"]),
        )
    request = ops.request(root, "change_webhook", tag_required=True, if_match=f'"{webhook.version}"')
    after = await webhooks_api.change_webhook(ops.services, request, webhook.id, ChangeWebhook(events=["*", "*"]))
    assert (after.events, after.description, after.version > webhook.version) == (("*",), "for the team", True)
    with pytest.raises(RequestRefused):  # 412
        await webhooks_api.change_webhook(ops.services, request, webhook.id, ChangeWebhook(events=["alert"]))

    async def another() -> None:
        await webhooks_service.rotate(ops.services.stores, webhook.id, actor="bob")

    late = replace(ops.services, stores=meanwhile(ops.services.stores, another))
    request = ops.request(root, "change_webhook", tag_required=True, if_match=f'"{after.version}"')
    with pytest.raises(StaleWrite):
        await webhooks_api.change_webhook(late, request, webhook.id, ChangeWebhook(is_active=False))
    assert (await webhooks_api.get_webhook(ops.services, LOCAL, webhook.id)).is_active


async def test_it_is_switched_off_and_on_with_other_changes_in_one_step(ops: Operations) -> None:
    webhook = await made(ops)
    off = ChangeWebhook(is_active=False, reason="too loud", description="silent")
    after = await webhooks_api.change_webhook(ops.services, LOCAL, webhook.id, off)
    assert (after.is_active, after.disabled_why, after.description) == (False, "too loud", "silent")
    assert await webhooks_api.change_webhook(ops.services, LOCAL, webhook.id, ChangeWebhook(is_active=False)) == after
    with pytest.raises(InvalidWebhook, match="disabled"):
        await webhooks_api.test_webhook(ops.services, LOCAL, webhook.id, Nothing())
    with pytest.raises(InvalidWebhook, match="is_active"):
        await webhooks_api.change_webhook(ops.services, LOCAL, webhook.id, ChangeWebhook(reason="why"))

    on = ChangeWebhook(is_active=True, url="https://b.example/")
    after = await webhooks_api.change_webhook(ops.services, LOCAL, webhook.id, on)
    assert (after.is_active, after.disabled_why, after.origin) == (True, None, "https://b.example")
    told = [e.type for e in await ops.services.stores.events.read(0, 100) if e.type.startswith("webhook.")]
    assert told == [
        *("webhook.created", "webhook.changed", "webhook.disabled"),
        *("webhook.changed", "webhook.enabled"),
    ]


async def test_a_test_is_sent_logged_and_sent_again(ops: Operations) -> None:
    webhook = await made(ops)
    await webhooks_api.test_webhook(ops.services, LOCAL, webhook.id, Nothing())
    await sent(ops, BROKEN)

    [delivery] = (await webhooks_api.list_deliveries(ops.services, LOCAL, webhook.id, ListDeliveries())).items
    assert (delivery.type, delivery.state, delivery.attempts[0].status) == (
        "webhook.tested",
        DeliveryState.WAITING,
        500,
    )
    assert await webhooks_api.get_delivery(ops.services, LOCAL, webhook.id, delivery.id) == delivery
    seen = await webhooks_api.get_webhook(ops.services, LOCAL, webhook.id)
    assert (seen.health.failures, seen.health.succeeded_at) == (1, None)
    assert '"failing_since":"20' in msgspec.json.encode(to_wire(seen)).decode()

    task = await webhooks_api.replay_delivery(ops.services, LOCAL, webhook.id, delivery.id, Nothing())
    assert (task.name, task.status) == (DELIVER, Status.PENDING)
    await sent(ops)
    again = await webhooks_api.get_delivery(ops.services, LOCAL, webhook.id, delivery.id)
    assert (again.state, again.replays) == (DeliveryState.DELIVERED, 1)


async def test_deliveries_are_listed_newest_first_page_by_page(ops: Operations) -> None:
    webhook = await made(ops)
    for _ in range(5):
        await webhooks_api.test_webhook(ops.services, LOCAL, webhook.id, Nothing())
    await sent(ops)
    first = await webhooks_api.list_deliveries(ops.services, LOCAL, webhook.id, ListDeliveries(limit=2))
    await webhooks_api.test_webhook(ops.services, LOCAL, webhook.id, Nothing())
    await sent(ops)  # what comes meanwhile moves nothing
    second = await webhooks_api.list_deliveries(
        ops.services, LOCAL, webhook.id, ListDeliveries(limit=3, cursor=first.next)
    )
    seqs = [delivery.seq for delivery in (*first.items, *second.items)]
    assert (len(seqs), seqs, second.next) == (5, sorted(seqs, reverse=True), None)

    waiting = ListDeliveries(state=DeliveryState.WAITING)
    assert (await webhooks_api.list_deliveries(ops.services, LOCAL, webhook.id, waiting)).items == []
    with pytest.raises(RequestRefused):
        await webhooks_api.list_deliveries(
            ops.services, LOCAL, webhook.id, ListDeliveries(state=DeliveryState.WAITING, cursor=first.next)
        )


async def test_what_is_removed_is_gone(ops: Operations) -> None:
    webhook, other = await made(ops), await made(ops)
    await webhooks_api.test_webhook(ops.services, LOCAL, webhook.id, Nothing())
    await sent(ops)
    [delivery] = (await webhooks_api.list_deliveries(ops.services, LOCAL, webhook.id, ListDeliveries())).items
    with pytest.raises(UnknownWebhook):  # of another webhook
        await webhooks_api.get_delivery(ops.services, LOCAL, other.id, delivery.id)
    await webhooks_api.remove_webhook(ops.services, LOCAL, webhook.id)

    for webhook_id in (webhook.id, ABSENT, "", "../x", "{}:*", "x" * 10_000):
        for gone in (
            webhooks_api.get_webhook(ops.services, LOCAL, webhook_id),
            webhooks_api.remove_webhook(ops.services, LOCAL, webhook_id),
            webhooks_api.change_webhook(ops.services, LOCAL, webhook_id, ChangeWebhook()),
            webhooks_api.rotate_webhook_secret(ops.services, LOCAL, webhook_id, RotateSecret()),
            webhooks_api.test_webhook(ops.services, LOCAL, webhook_id, Nothing()),
            webhooks_api.list_deliveries(ops.services, LOCAL, webhook_id, ListDeliveries()),
            webhooks_api.get_delivery(ops.services, LOCAL, webhook_id, delivery.id),
            webhooks_api.replay_delivery(ops.services, LOCAL, webhook_id, delivery.id, Nothing()),
        ):
            with pytest.raises(UnknownWebhook):
                await gone
    listed = await webhooks_api.list_webhooks(ops.services, LOCAL, ListWebhooks())
    assert [each.id for each in listed.items] == [other.id]


async def test_operators_look_and_admins_change(ops: Operations) -> None:
    operator, viewer = await ops.account("olga"), await ops.account("vera", Role.VIEWER)
    for operation in ("create_webhook", "change_webhook", "remove_webhook", "rotate_webhook_secret"):
        with pytest.raises(NotPermitted):
            ops.request(operator, operation)
    for operation in ("list_webhooks", "list_deliveries", "replay_delivery", "test_webhook"):
        ops.request(operator, operation)
        with pytest.raises(NotPermitted):
            ops.request(viewer, operation)


async def test_selected_tasks_are_shown_and_can_be_changed(ops: Operations) -> None:
    selected = SelectTasks(queues=["mail", "mail"], authors=["ada"])
    made = await webhooks_api.create_webhook(ops.services, LOCAL, structs.replace(NEW, tasks=selected))
    assert made.tasks == TaskSelection(queues=("mail",), authors=("ada",))
    for change, expected in (
        (ChangeWebhook(description="x"), made.tasks),
        (ChangeWebhook(tasks=SelectTasks()), TaskSelection()),
    ):
        after = await webhooks_api.change_webhook(ops.services, LOCAL, made.id, change)
        assert after.tasks == expected
