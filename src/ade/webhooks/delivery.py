"""One attempt to deliver one message: what the tasks named `webhooks:deliver` do.

The handler takes the fields of `Order` as its arguments, and is to be registered with `DELIVER` as its name, `QUEUE` as
its queue and a `concurrency_per_key` of a few (the key is the webhook), as:

    settle(await deliver(stores, sender, order, attempt=ctx.attempt, dice=random(), reach=reach))
"""

from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from ade import VERSION
from ade.accounts.model import SYSTEM
from ade.errors import InvalidWebhook, StaleWrite, UnknownWebhook
from ade.events.model import Event
from ade.stores.ports import Stores
from ade.stores.repository import StoredRecord, decided
from ade.stores.resource_ports import DocumentWrite
from ade.tasks.enqueue import enqueue
from ade.tasks.identifiers import CURSOR
from ade.tasks.model import Task
from ade.tasks.outcomes import Retry, Unrecoverable
from ade.tasks.payloads import Payloads
from ade.webhooks.deliveries import (
    Delivery,
    DeliveryDecision,
    DeliveryResponse,
    DeliveryState,
    DeliveryStep,
    DeliveryTaskArguments,
    WebhookHealth,
    attempted,
    cleaned,
    decide_delivery,
    delivery_id,
    ended,
    new_delivery,
    oldest_beyond,
    orders_of,
    replay_order,
    replayed,
)
from ade.webhooks.destinations import PUBLIC, NetworkPolicy, WebhookUrl, check_url, secrets_in_url
from ade.webhooks.model import WEBHOOK_REPLAYED, Webhook, about
from ade.webhooks.service import HEALTH, WEBHOOKS, deliveries_of, disable, find, list_webhooks, quiet
from ade.webhooks.signatures import SECRET_PREFIX, signed_headers

# The log of deliveries: what was sent to a webhook, what it answered, and sending it once more.


Place = tuple[int, int]


async def list_deliveries(
    stores: Stores, webhook_id: str, *, state: DeliveryState | None = None, before: Place | None = None, limit: int = 50
) -> list[Delivery]:
    """The newest first, in one state if asked, and those `before` a place alone. Raises UnknownWebhook."""
    await find(stores, webhook_id)
    kept = [each.record for each in (await deliveries_of(webhook_id).all(stores)).values()]
    wanted = [
        delivery
        for delivery in kept
        if (state is None or delivery.state is state) and (before is None or place_of(delivery) < before)
    ]
    return sorted(wanted, key=place_of, reverse=True)[:limit]


def place_of(delivery: Delivery) -> Place:
    """Where it stands in the list, however many are added or removed meanwhile."""
    return delivery.created_at, delivery.seq


async def find_delivery(stores: Stores, webhook_id: str, delivery_id: str) -> StoredRecord[Delivery]:
    """Raises UnknownWebhook, also when the delivery is not kept any more."""
    await find(stores, webhook_id)
    kept = await deliveries_of(webhook_id).get(stores, delivery_id)
    if kept is None:
        raise UnknownWebhook(f"no delivery {delivery_id[:60]!r} of this webhook is kept; its log shows those that are")
    return kept


async def replay(stores: Stores, payloads: Payloads, webhook_id: str, delivery_id: str, *, actor: str | None) -> Task:
    """Send a message once more, with all its attempts, under its old id. Answers the task that does it.

    One that still waits for its next attempt is sent now, and not again when that has come if it went well.
    Raises UnknownWebhook, and InvalidWebhook for one that is disabled.
    """

    async def step() -> Delivery:
        webhook, kept = (await find(stores, webhook_id)).record, await find_delivery(stores, webhook_id, delivery_id)
        if not webhook.is_active:
            raise InvalidWebhook("the webhook is disabled, so nothing can be sent to it; enable it first")
        after = replayed(kept.record, now=stores.clock.now())
        told = about(webhook, delivery=after.id, type=after.type)
        event = Event(type=WEBHOOK_REPLAYED, at=after.updated_at, actor=actor, payload=told)
        put = quiet(deliveries_of(webhook_id).put(after.id, after, seen=kept.version))
        await stores.documents.write([put], [event])
        return after

    [task] = await enqueue(stores, payloads, [replay_order(await decided(step))])
    return task


async def clear_old(stores: Stores, webhook_id: str) -> int:
    """Keep the newest. Answers how many were removed."""
    shelf = deliveries_of(webhook_id)
    gone = oldest_beyond(kept.record for kept in (await shelf.all(stores)).values())
    await stores.documents.write([quiet(shelf.remove(delivery.id)) for delivery in gone])
    return len(gone)


# Who sends messages: the only part that talks to the network, and that must not be talked into going astray.


class WebhookMessage(Struct, frozen=True, kw_only=True):
    """A POST, ready to be sent. `headers` has all but Host, Content-Length and Connection, which are the sender's."""

    target: WebhookUrl
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Message({self.target.origin!r})"  # its path may be a secret


class WebhookSender(Protocol):
    async def send(self, message: WebhookMessage, reach: NetworkPolicy) -> DeliveryResponse:
        """POST the message once and answer what came of it. Whatever the other side does is an Answer, not an error;
        only cancellation passes through.

        - The name is resolved once. Each address it leads to is judged by `check_address(address, reach)`; the
          connection is made to one that passes, by its number, and never through a proxy from the environment. The
          peer of the connection is judged again. What is refused is an Answer with the refusal's sentence as `error`.
        - `Host` is `target.authority`; TLS names and checks `target.host`, with the usual roots and no exceptions.
        - The request line has `target.path` as it is. No redirect is followed: 3xx is an Answer like any other.
        - All of it takes 20 seconds at most, the connection 10 of them. Of the answer at most `READ_BYTES` of the body
          and 16 kB of headers are read, then the connection is closed. Nothing is unpacked (no Accept-Encoding).
        - `retry_after` is that header as it came, `duration_ms` is measured by a clock that never jumps.
        """


_HEADERS = {"content-type": "application/json", "user-agent": f"ade-webhooks/{VERSION}"}


async def deliver(
    stores: Stores,
    sender: WebhookSender,
    order: DeliveryTaskArguments,
    *,
    attempt: int,
    randomness: float,
    reach: NetworkPolicy = PUBLIC,
) -> DeliveryDecision:
    """Send the message once, and keep what came of it.

    A message may be sent twice if this dies between sending and keeping; it has the same id then. Nothing is sent when
    the webhook is gone or disabled, and nothing again that was delivered, unless it is replayed.
    """
    kept = await WEBHOOKS.get(stores, order.webhook_id)
    if kept is None:
        return DeliveryDecision(step=DeliveryStep.DROP, reason="the webhook was removed")
    found = await _delivery(stores, order)
    if found is None:
        return DeliveryDecision(step=DeliveryStep.DROP, reason="the event is not in the log any more")
    if found.record.state is DeliveryState.DELIVERED and found.record.replays >= order.replay:
        return DeliveryDecision(step=DeliveryStep.DELIVERED, reason="it was delivered before")
    if not kept.record.is_active:
        dropped = DeliveryDecision(step=DeliveryStep.DROP, reason="the webhook is disabled")
        await _keep(stores, ended(found.record, dropped, now=stores.clock.now()), found.version)
        return dropped
    answer = cleaned(await _sent(stores, sender, kept.record, found.record, reach), _hidden(kept.record))
    health = await _noted(stores, order.webhook_id, answer)
    now = stores.clock.now()
    judgement = decide_delivery(answer, health, attempt=attempt, now=now, randomness=randomness)
    after = attempted(found.record, answer, judgement, number=attempt, now=now)
    await _keep(stores, after, found.version)
    if judgement.step is DeliveryStep.DISABLE:
        with suppress(UnknownWebhook):  # removed meanwhile
            await disable(stores, order.webhook_id, judgement.reason, actor=SYSTEM)
    return judgement


def settle(judgement: DeliveryDecision) -> str:
    """What the run of the task comes to: its result, or what it raises. What was given up is a dead letter."""
    match judgement.step:
        case DeliveryStep.RETRY:
            raise Retry(judgement.reason, after=judgement.delay_ms / 1000)
        case DeliveryStep.GIVE_UP | DeliveryStep.DISABLE:
            raise Unrecoverable(judgement.reason)
        case DeliveryStep.DELIVERED | DeliveryStep.DROP:
            return f"{judgement.step}: {judgement.reason}"


async def _delivery(stores: Stores, order: DeliveryTaskArguments) -> StoredRecord[Delivery] | None:
    """As it is kept, or new (version 0) from its event. A replay needs no event: it may have left the log by then."""
    shelf = deliveries_of(order.webhook_id)
    event = await _event(stores, order.seq)
    if event is not None:
        message_id = delivery_id(order.webhook_id, event)
        known = await shelf.get(stores, message_id)
        if known is None:
            return StoredRecord(new_delivery(order.webhook_id, event, now=stores.clock.now()), 0)
        return known
    matching = [kept for kept in (await shelf.all(stores)).values() if kept.record.seq == order.seq]
    return matching[0] if matching else None


async def _event(stores: Stores, seq: int) -> Event | None:
    events = await stores.events.read(seq - 1, 1)
    return events[0] if events and events[0].seq == seq else None


async def _sent(
    stores: Stores, sender: WebhookSender, webhook: Webhook, delivery: Delivery, reach: NetworkPolicy
) -> DeliveryResponse:
    try:
        target = check_url(webhook.url, reach)
    except InvalidWebhook as refused:  # what may be reached has changed since it was made
        return DeliveryResponse(error=refused.detail)
    now, body = stores.clock.now(), delivery.body.encode()
    signed = signed_headers(delivery.id, now // 1000, body, webhook.signing_secrets(now))
    try:
        return await sender.send(WebhookMessage(target=target, headers={**_HEADERS, **signed}, body=body), reach)
    except Exception as broken:  # a fault of ours: it must not use up all attempts within minutes
        return DeliveryResponse(error=f"it could not be sent ({type(broken).__name__})")


def _hidden(webhook: Webhook) -> list[str]:
    """What must not be read in a log, should the other side send it back."""
    values = [secret.value for secret in webhook.secrets]
    return [*values, *(value.removeprefix(SECRET_PREFIX) for value in values), *secrets_in_url(webhook.url)]


async def _noted(stores: Stores, webhook_id: str, answer: DeliveryResponse) -> WebhookHealth:
    """How the webhook fares after this answer."""

    async def step() -> WebhookHealth:
        kept: StoredRecord[WebhookHealth] | None = await HEALTH.get(stores, webhook_id)
        before = WebhookHealth() if kept is None else kept.record
        after = before.after(answer, now=stores.clock.now())
        if after is not before:
            put = HEALTH.put(webhook_id, after, seen=0 if kept is None else kept.version)
            await stores.documents.write([quiet(put)])
        return after

    try:
        return await decided(step)
    except StaleWrite:  # very many at once, which have noted much the same
        return WebhookHealth()


async def _keep(stores: Stores, delivery: Delivery, seen: int) -> None:
    """For people to look at. Where somebody was faster, the same message is being sent twice at once: one is shown."""
    put: DocumentWrite = quiet(deliveries_of(delivery.webhook).put(delivery.id, delivery, seen=seen))
    with suppress(StaleWrite):
        await stores.documents.write([put])
    if seen == 0 and delivery.clears:
        await clear_old(stores, delivery.webhook)


# The follower: reads the event log behind a named cursor and enqueues a task for every message.
#
# A duty: done by one process at a time, and again at once as long as it answers more than 0. Two at once do no harm:
# a message's task has a key.


PAGE = 200  # events at once: each may become as many tasks as there are webhooks


async def follow(stores: Stores, payloads: Payloads, *, limit: int = PAGE) -> int:
    """Look at the next events. Answers how many; a crash anywhere leaves out none and delivers none twice."""
    end = await stores.events.last_seq()
    reached, active = (await stores.events.cursors()).get(CURSOR, 0), await _active(stores)
    if not active:
        if reached:  # whoever is told nothing must not keep the log from being trimmed
            await stores.events.advance(CURSOR, end)
        return 0
    after = max(reached, min(webhook.since for webhook in active))
    events = await stores.events.read(after, limit)
    if not events:
        return 0
    # Looked at again: who came after the first look may want what happened just before this page was read.
    orders = orders_of(events, await _active(stores))
    if orders:
        await enqueue(stores, payloads, orders)
    await stores.events.advance(CURSOR, events[-1].seq)
    return len(events)


async def _active(stores: Stores) -> list[Webhook]:
    return [webhook for webhook in await list_webhooks(stores) if webhook.is_active]
