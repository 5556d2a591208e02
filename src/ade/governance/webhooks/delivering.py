"""One attempt to deliver one message: what the tasks named `webhooks:deliver` do.

The handler takes the fields of `Order` as its arguments, and is to be registered with `DELIVER` as its name, `QUEUE` as
its queue and a `concurrency_per_key` of a few (the key is the webhook), as:

    settle(await deliver(stores, sender, order, attempt=ctx.attempt, dice=random(), reach=reach))
"""

from contextlib import suppress

from ade.core.control import Retry, Unrecoverable
from ade.core.documents import DocumentWrite
from ade.core.errors import StaleWrite
from ade.core.events import Event
from ade.core.records import SYSTEM
from ade.core.webhooks.addresses import PUBLIC, Reach
from ade.core.webhooks.deliveries import Delivery, State, attempted, cleaned, delivery_id, ended, new_delivery
from ade.core.webhooks.errors import InvalidWebhook, UnknownWebhook
from ade.core.webhooks.judging import Answer, Health, Judgement, Step, judge
from ade.core.webhooks.orders import Order
from ade.core.webhooks.records import Webhook
from ade.core.webhooks.signatures import SECRET_PREFIX, signed_headers
from ade.core.webhooks.targets import check_url, secrets_in_url
from ade.governance.kept import Kept, decided
from ade.governance.webhooks.keeping import disable
from ade.governance.webhooks.log import clear_old
from ade.governance.webhooks.sending import Message, Sender
from ade.governance.webhooks.shelves import HEALTH, WEBHOOKS, deliveries_of, quiet
from ade.ports import Stores
from ade.version import VERSION

_HEADERS = {"content-type": "application/json", "user-agent": f"ade-webhooks/{VERSION}"}


async def deliver(
    stores: Stores, sender: Sender, order: Order, *, attempt: int, dice: float, reach: Reach = PUBLIC
) -> Judgement:
    """Send the message once, and keep what came of it.

    A message may be sent twice if this dies between sending and keeping; it has the same id then. Nothing is sent when
    the webhook is gone or disabled, and nothing again that was delivered, unless it is replayed.
    """
    kept = await WEBHOOKS.get(stores, order.webhook_id)
    if kept is None:
        return Judgement(step=Step.DROP, reason="the webhook was removed")
    found = await _delivery(stores, order)
    if found is None:
        return Judgement(step=Step.DROP, reason="the event is not in the log any more")
    if found.record.state is State.DELIVERED and found.record.replays >= order.replay:
        return Judgement(step=Step.DELIVERED, reason="it was delivered before")
    if not kept.record.is_active:
        dropped = Judgement(step=Step.DROP, reason="the webhook is disabled")
        await _keep(stores, ended(found.record, dropped, now=stores.clock.now()), found.version)
        return dropped
    answer = cleaned(await _sent(stores, sender, kept.record, found.record, reach), _hidden(kept.record))
    health = await _noted(stores, order.webhook_id, answer)
    now = stores.clock.now()
    judgement = judge(answer, health, attempt=attempt, now=now, dice=dice)
    after = attempted(found.record, answer, judgement, number=attempt, now=now)
    await _keep(stores, after, found.version)
    if judgement.step is Step.DISABLE:
        with suppress(UnknownWebhook):  # removed meanwhile
            await disable(stores, order.webhook_id, judgement.reason, actor=SYSTEM)
    return judgement


def settle(judgement: Judgement) -> str:
    """What the run of the task comes to: its result, or what it raises. What was given up is a dead letter."""
    match judgement.step:
        case Step.RETRY:
            raise Retry(judgement.reason, after=judgement.delay_ms / 1000)
        case Step.GIVE_UP | Step.DISABLE:
            raise Unrecoverable(judgement.reason)
        case Step.DELIVERED | Step.DROP:
            return f"{judgement.step}: {judgement.reason}"


async def _delivery(stores: Stores, order: Order) -> Kept[Delivery] | None:
    """As it is kept, or new (version 0) from its event. A replay needs no event: it may have left the log by then."""
    shelf = deliveries_of(order.webhook_id)
    event = await _event(stores, order.seq)
    if event is not None:
        message_id = delivery_id(order.webhook_id, event)
        known = await shelf.get(stores, message_id)
        if known is None:
            return Kept(new_delivery(order.webhook_id, event, now=stores.clock.now()), 0)
        return known
    matching = [kept for kept in (await shelf.all(stores)).values() if kept.record.seq == order.seq]
    return matching[0] if matching else None


async def _event(stores: Stores, seq: int) -> Event | None:
    events = await stores.events.read(seq - 1, 1)
    return events[0] if events and events[0].seq == seq else None


async def _sent(stores: Stores, sender: Sender, webhook: Webhook, delivery: Delivery, reach: Reach) -> Answer:
    try:
        target = check_url(webhook.url, reach)
    except InvalidWebhook as refused:  # what may be reached has changed since it was made
        return Answer(error=refused.detail)
    now, body = stores.clock.now(), delivery.body.encode()
    signed = signed_headers(delivery.id, now // 1000, body, webhook.signing_secrets(now))
    try:
        return await sender.send(Message(target=target, headers={**_HEADERS, **signed}, body=body), reach)
    except Exception as broken:  # a fault of ours: it must not use up all attempts within minutes
        return Answer(error=f"it could not be sent ({type(broken).__name__})")


def _hidden(webhook: Webhook) -> list[str]:
    """What must not be read in a log, should the other side send it back."""
    values = [secret.value for secret in webhook.secrets]
    return [*values, *(value.removeprefix(SECRET_PREFIX) for value in values), *secrets_in_url(webhook.url)]


async def _noted(stores: Stores, webhook_id: str, answer: Answer) -> Health:
    """How the webhook fares after this answer."""

    async def step() -> Health:
        kept: Kept[Health] | None = await HEALTH.get(stores, webhook_id)
        before = Health() if kept is None else kept.record
        after = before.after(answer, now=stores.clock.now())
        if after is not before:
            put = HEALTH.put(webhook_id, after, seen=0 if kept is None else kept.version)
            await stores.documents.write([quiet(put)])
        return after

    try:
        return await decided(step)
    except StaleWrite:  # very many at once, which have noted much the same
        return Health()


async def _keep(stores: Stores, delivery: Delivery, seen: int) -> None:
    """For people to look at. Where somebody was faster, the same message is being sent twice at once: one is shown."""
    put: DocumentWrite = quiet(deliveries_of(delivery.webhook).put(delivery.id, delivery, seen=seen))
    with suppress(StaleWrite):
        await stores.documents.write([put])
    if seen == 0 and delivery.clears:
        await clear_old(stores, delivery.webhook)
