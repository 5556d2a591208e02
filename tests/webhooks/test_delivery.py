"""Messages are sent, signed, tried again and given up; what came of each is kept, and can be sent once more."""

import json

import msgspec
import pytest

from ade import Retry, Task, Unrecoverable
from ade.errors import InvalidWebhook, UnknownWebhook
from ade.testing import TestClock
from ade.webhooks.deliveries import (
    ATTEMPTS,
    DELIVERY_RETENTION_MS,
    LEAST_FAILURES,
    MAX_DELIVERIES,
    DeliveryResponse,
    DeliveryState,
    DeliveryStep,
    DeliveryTaskArguments,
)
from ade.webhooks.dispatch import clear_old, deliver, find_delivery, follow, list_deliveries, replay, settle
from ade.webhooks.service import WebhookChanges, change, deliveries_of, disable, find, remove, rotate
from ade.webhooks.signatures import verify
from tests.domain import NetworkPolicy, Payloads, Stores, Webhook, networks_of
from tests.stores.interleaved_writes import meanwhile
from tests.webhooks.conftest import BROKEN, GONE, OK, Network, happen, orders, told

DAY_S = 86_400


def order_in(task: Task) -> DeliveryTaskArguments:
    return msgspec.json.decode(task.args, type=DeliveryTaskArguments)


@pytest.fixture
async def order(stores: Stores, payloads: Payloads, webhook: Webhook) -> DeliveryTaskArguments:
    """A task came in, and the webhook shall be told."""
    await happen(stores, payloads, "a")
    await follow(stores, payloads)
    [task] = await orders(stores)
    return order_in(task)


async def tried(stores: Stores, network: Network, order: DeliveryTaskArguments, attempt: int = 1) -> DeliveryStep:
    return (await deliver(stores, network, order, attempt=attempt, randomness=0.5)).step


async def test_a_message_is_signed_and_says_what_happened(
    stores: Stores, order: DeliveryTaskArguments, clock: TestClock
) -> None:
    network = Network(OK)
    webhook = await rotate(stores, order.webhook_id, actor="root")

    assert await tried(stores, network, order) is DeliveryStep.DELIVERED

    [message] = network.sent
    assert (message.target.host, message.target.path) == ("hooks.example.org", "/s3cret-path")
    assert message.headers["content-type"] == "application/json"
    for secret in webhook.secrets:
        assert verify(message.headers, message.body, [secret.value], now_s=clock.now() // 1000)
    said = json.loads(message.body)
    assert (said["type"], said["data"]["name"], said["data"]["seq"]) == ("task.created", "a", order.seq)
    assert (said["data"]["queue"], said["data"]["link"]) == ("default", f"/api/v1/tasks/{said['data']['task_id']}")
    assert "s3cret" not in repr(message)


async def test_what_came_of_it_is_kept_for_a_while(
    stores: Stores, order: DeliveryTaskArguments, clock: TestClock
) -> None:
    network = Network(DeliveryResponse(status=503, duration_ms=12, retry_after="60", excerpt=b"busy\n"), OK)

    judgement = await deliver(stores, network, order, attempt=1, randomness=0.5)
    assert (judgement.step, judgement.delay_ms) == (DeliveryStep.RETRY, 60_000)
    [waiting] = await list_deliveries(stores, order.webhook_id, state=DeliveryState.WAITING)
    assert waiting.next_at == clock.now() + 60_000
    clock.advance(60)
    await tried(stores, network, order, attempt=2)

    [delivery] = await list_deliveries(stores, order.webhook_id)
    assert (delivery.state, delivery.next_at, delivery.type) == (DeliveryState.DELIVERED, None, "task.created")
    shown = [(each.number, each.status, each.duration_ms, each.excerpt) for each in delivery.attempts]
    assert shown == [(1, 503, 12, "busy"), (2, 204, 0, "")]
    assert network.sent[0].headers["webhook-id"] == network.sent[1].headers["webhook-id"] == delivery.id
    assert network.sent[0].body == network.sent[1].body
    clock.advance(DELIVERY_RETENTION_MS / 1000)
    assert await list_deliveries(stores, order.webhook_id) == []


async def test_what_was_delivered_is_not_sent_again(stores: Stores, order: DeliveryTaskArguments) -> None:
    network = Network(OK)

    assert [await tried(stores, network, order) for _ in range(3)] == [DeliveryStep.DELIVERED] * 3
    assert len(network.sent) == 1


async def test_after_the_last_attempt_it_is_given_up(stores: Stores, order: DeliveryTaskArguments) -> None:
    network = Network(BROKEN)
    steps = [await tried(stores, network, order, attempt) for attempt in range(1, ATTEMPTS + 1)]

    assert steps == [DeliveryStep.RETRY] * (ATTEMPTS - 1) + [DeliveryStep.GIVE_UP]
    [delivery] = await list_deliveries(stores, order.webhook_id)
    assert (delivery.state, len(delivery.attempts)) == (DeliveryState.FAILED, ATTEMPTS)
    assert (await find(stores, order.webhook_id)).record.is_active


async def test_who_is_gone_is_disabled(stores: Stores, order: DeliveryTaskArguments) -> None:
    assert await tried(stores, Network(GONE), order) is DeliveryStep.DISABLE

    webhook = (await find(stores, order.webhook_id)).record
    assert not webhook.is_active
    assert "410" in (webhook.disabled_why or "")
    event = (await stores.events.read(0, 100))[-1]
    assert (event.type, event.actor) == ("webhook.disabled", "system")
    network = Network(OK)
    assert await tried(stores, network, order) is DeliveryStep.DROP
    assert network.sent == []


async def test_a_week_of_failures_disables_and_one_success_prevents_it(
    stores: Stores, order: DeliveryTaskArguments, clock: TestClock
) -> None:
    network = Network(DeliveryResponse(error="no connection"))
    for _ in range(LEAST_FAILURES):
        await tried(stores, network, order)
    clock.advance(6 * DAY_S)
    assert await tried(stores, Network(OK), order) is DeliveryStep.DELIVERED
    clock.advance(DAY_S)
    [made] = await stores.events.read(0, 1)
    again = DeliveryTaskArguments(webhook_id=order.webhook_id, seq=made.seq)
    for _ in range(LEAST_FAILURES):
        assert await tried(stores, network, again) is DeliveryStep.RETRY
    clock.advance(7 * DAY_S)

    assert await tried(stores, network, again) is DeliveryStep.DISABLE
    assert "for a week" in ((await find(stores, order.webhook_id)).record.disabled_why or "")


async def test_nothing_goes_to_who_is_silent_or_removed(stores: Stores, order: DeliveryTaskArguments) -> None:
    network = Network(OK)
    await disable(stores, order.webhook_id, "enough", actor="root")
    assert await tried(stores, network, order) is DeliveryStep.DROP
    [delivery] = await list_deliveries(stores, order.webhook_id)
    assert (delivery.state, delivery.why) == (DeliveryState.DROPPED, "the webhook is disabled")

    await remove(stores, order.webhook_id, actor="root")
    assert await tried(stores, network, order) is DeliveryStep.DROP
    assert network.sent == []
    assert await deliveries_of(order.webhook_id).all(stores) == {}


async def test_an_order_that_somebody_made_up_sends_nothing(stores: Stores, order: DeliveryTaskArguments) -> None:
    network = Network(OK)

    for made_up in (
        DeliveryTaskArguments(webhook_id="nobody", seq=1),
        DeliveryTaskArguments(webhook_id=order.webhook_id, seq=999),
    ):
        assert await tried(stores, network, made_up) is DeliveryStep.DROP
    assert network.sent == []


async def test_a_url_that_may_not_be_reached_any_more_is_not_called(
    stores: Stores, order: DeliveryTaskArguments
) -> None:
    network = Network(OK)
    await change(stores, order.webhook_id, WebhookChanges(url="https://8.8.8.8/"), actor="root")
    reach = NetworkPolicy(refused=networks_of(["8.8.8.0/24"]))

    judgement = await deliver(stores, network, order, attempt=1, randomness=0.5, reach=reach)

    assert (judgement.step, network.sent) == (DeliveryStep.RETRY, [])
    assert "refused by the settings" in judgement.reason


async def test_a_sender_that_breaks_is_one_failed_attempt(stores: Stores, order: DeliveryTaskArguments) -> None:
    judgement = await deliver(stores, Network(OSError("s3cret")), order, attempt=1, randomness=0.5)

    assert (judgement.step, judgement.reason) == (DeliveryStep.RETRY, "it could not be sent (OSError)")


async def test_what_the_other_side_sends_back_shows_no_secret(
    stores: Stores, order: DeliveryTaskArguments, webhook: Webhook
) -> None:
    secret = webhook.secrets[0].value
    echo = f"you sent {secret} {secret[6:]} to {webhook.url}".encode()

    await tried(stores, Network(DeliveryResponse(status=400, excerpt=echo)), order)
    await tried(stores, Network(DeliveryResponse(error=f"no way to {webhook.url}")), order)

    shown = repr(await list_deliveries(stores, webhook.id))
    assert secret[6:] not in shown
    assert "s3cret" not in shown
    assert "you sent [hidden] [hidden] to [hidden]" in shown


async def test_two_that_send_the_same_at_once_do_no_harm(stores: Stores, order: DeliveryTaskArguments) -> None:
    async def other() -> None:
        await tried(stores, Network(OK), order)

    assert await tried(meanwhile(stores, other), Network(OK), order) is DeliveryStep.DELIVERED

    assert [each.state for each in await list_deliveries(stores, order.webhook_id)] == [DeliveryState.DELIVERED]


async def test_a_message_is_sent_once_more(stores: Stores, payloads: Payloads, order: DeliveryTaskArguments) -> None:
    network = Network(OK)
    await tried(stores, network, order)
    [delivery] = await list_deliveries(stores, order.webhook_id)

    task = await replay(stores, payloads, order.webhook_id, delivery.id, actor="ada")
    for _ in range(2):  # a crash after it was kept
        assert await tried(stores, network, order_in(task)) is DeliveryStep.DELIVERED
    assert await tried(stores, network, order) is DeliveryStep.DELIVERED

    assert [message.headers["webhook-id"] for message in network.sent] == [delivery.id] * 2
    after = (await find_delivery(stores, order.webhook_id, delivery.id)).record
    assert (after.state, after.replays, len(after.attempts)) == (DeliveryState.DELIVERED, 1, 2)
    assert (await told(stores))[-1] == "webhook.replayed"
    while await follow(stores, payloads):
        pass
    assert len(await orders(stores)) == 2


async def test_a_message_that_waits_is_sent_now_and_not_again(
    stores: Stores, payloads: Payloads, order: DeliveryTaskArguments
) -> None:
    await tried(stores, Network(BROKEN), order)
    [delivery] = await list_deliveries(stores, order.webhook_id)
    network = Network(OK)

    task = await replay(stores, payloads, order.webhook_id, delivery.id, actor="ada")
    assert await tried(stores, network, order_in(task)) is DeliveryStep.DELIVERED
    assert await tried(stores, network, order, attempt=2) is DeliveryStep.DELIVERED

    assert len(network.sent) == 1


async def test_a_message_outlives_its_event(stores: Stores, payloads: Payloads, order: DeliveryTaskArguments) -> None:
    await tried(stores, Network(OK), order)
    [delivery] = await list_deliveries(stores, order.webhook_id)
    elsewhere = DeliveryTaskArguments(webhook_id=order.webhook_id, seq=999, replay=1)
    kept = deliveries_of(order.webhook_id)
    await stores.documents.write(
        [kept.put("msg_0", msgspec.structs.replace(delivery, id="msg_0", seq=999, state=DeliveryState.WAITING), seen=0)]
    )
    network = Network(OK)

    assert await tried(stores, network, elsewhere) is DeliveryStep.DELIVERED
    assert network.sent[0].body == delivery.body.encode()


async def test_what_cannot_be_replayed(stores: Stores, payloads: Payloads, order: DeliveryTaskArguments) -> None:
    with pytest.raises(UnknownWebhook, match="no delivery"):
        await replay(stores, payloads, order.webhook_id, "msg_x", actor="ada")
    with pytest.raises(UnknownWebhook, match="no webhook"):
        await list_deliveries(stores, "nonsense")
    await tried(stores, Network(GONE), order)
    [delivery] = await list_deliveries(stores, order.webhook_id)
    with pytest.raises(InvalidWebhook, match="enable it first"):
        await replay(stores, payloads, order.webhook_id, delivery.id, actor="ada")


async def test_the_log_of_deliveries_has_an_end(stores: Stores, order: DeliveryTaskArguments) -> None:
    await tried(stores, Network(OK), order)
    [delivery] = await list_deliveries(stores, order.webhook_id)
    shelf = deliveries_of(order.webhook_id)
    many = [
        msgspec.structs.replace(delivery, id=f"msg_{number}", created_at=delivery.created_at + number)
        for number in range(1, MAX_DELIVERIES + 5)
    ]
    await stores.documents.write([shelf.put(each.id, each, seen=0) for each in many])

    assert await clear_old(stores, order.webhook_id) == 5
    assert await clear_old(stores, order.webhook_id) == 0
    newest = await list_deliveries(stores, order.webhook_id, limit=2)
    assert [each.id for each in newest] == [f"msg_{MAX_DELIVERIES + 4}", f"msg_{MAX_DELIVERIES + 3}"]


async def test_what_a_run_comes_to(stores: Stores, order: DeliveryTaskArguments) -> None:
    with pytest.raises(Retry) as again:
        settle(await deliver(stores, Network(BROKEN), order, attempt=2, randomness=0.5))
    assert again.value.after == 300
    with pytest.raises(Unrecoverable, match="attempt 10 of 10"):
        settle(await deliver(stores, Network(BROKEN), order, attempt=ATTEMPTS, randomness=0.5))
    assert settle(await deliver(stores, Network(OK), order, attempt=1, randomness=0.5)) == "delivered: it answered 204"
