"""Deliver messages: the delivery log, one attempt of a `webhooks:deliver` task, and the event log follower.

The task handler takes the fields of `DeliveryTaskArguments`. It is registered with the name `DELIVER`, the queue
`QUEUE`, and a small `concurrency_per_key` (the key is the webhook), and runs:

    settle(await deliver(stores, sender, order, attempt=ctx.attempt, randomness=random(), reach=reach))
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
    Place,
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
from ade.webhooks.model import WEBHOOK_REPLAYED, Webhook, about, matches
from ade.webhooks.service import HEALTH, WEBHOOKS, deliveries_of, disable, find, list_webhooks, quiet
from ade.webhooks.signatures import SECRET_PREFIX, signed_headers


async def list_deliveries(
    stores: Stores, webhook_id: str, *, state: DeliveryState | None = None, before: Place | None = None, limit: int = 50
) -> list[Delivery]:
    """Return deliveries, newest first, optionally in one state or `before` a place. Raises UnknownWebhook."""
    await find(stores, webhook_id)
    stored = [each.record for each in (await deliveries_of(webhook_id).all(stores)).values()]
    matching = [
        delivery
        for delivery in stored
        if (state is None or delivery.state is state) and (before is None or delivery.place < before)
    ]
    return sorted(matching, key=lambda delivery: delivery.place, reverse=True)[:limit]


async def find_delivery(stores: Stores, webhook_id: str, delivery_id: str) -> StoredRecord[Delivery]:
    """Return a delivery. Raises UnknownWebhook, also if the delivery is no longer stored."""
    await find(stores, webhook_id)
    stored = await deliveries_of(webhook_id).get(stores, delivery_id)
    if stored is None:
        raise UnknownWebhook(
            f"no delivery {delivery_id[:60]!r} of this webhook is stored; its log shows those that are"
        )
    return stored


async def replay(stores: Stores, payloads: Payloads, webhook_id: str, delivery_id: str, *, actor: str | None) -> Task:
    """Send a message again, with all its attempts and the same ID. Returns the task that sends it.

    A delivery that waits for its next attempt is sent now. If that succeeds, the next attempt sends nothing. Raises
    UnknownWebhook, and InvalidWebhook for a disabled webhook.
    """

    async def step() -> Delivery:
        webhook, stored = (await find(stores, webhook_id)).record, await find_delivery(stores, webhook_id, delivery_id)
        if not webhook.is_active:
            raise InvalidWebhook("the webhook is disabled, so nothing can be sent to it; enable it first")
        after = replayed(stored.record, now=stores.clock.now())
        payload = about(webhook, delivery=after.id, type=after.type)
        event = Event(type=WEBHOOK_REPLAYED, at=after.updated_at, actor=actor, payload=payload)
        put = quiet(deliveries_of(webhook_id).put(after.id, after, seen=stored.version))
        await stores.documents.write([put], [event])
        return after

    [task] = await enqueue(stores, payloads, [replay_order(await decided(step))])
    return task


async def clear_old(stores: Stores, webhook_id: str) -> int:
    """Delete all but the newest deliveries. Returns the number of deleted ones."""
    deliveries = deliveries_of(webhook_id)
    gone = oldest_beyond(stored.record for stored in (await deliveries.all(stores)).values())
    await stores.documents.write([quiet(deliveries.remove(delivery.id)) for delivery in gone])
    return len(gone)


class WebhookMessage(Struct, frozen=True, kw_only=True):
    """A POST request, ready to send. `headers` omits Host, Content-Length, and Connection, which the sender adds."""

    target: WebhookUrl
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Message({self.target.origin!r})"  # the path might be a secret


class WebhookSender(Protocol):
    """Sends messages: the only part that accesses the network, so it must enforce the network policy."""

    async def send(self, message: WebhookMessage, reach: NetworkPolicy) -> DeliveryResponse:
        """POST the message once and return the outcome. Everything the receiver does is a response, not an error; only
        cancellation propagates.

        - The name is resolved once, and each address is checked by `check_address(address, reach)`. The connection is
          made to a permitted address by its number, never through a proxy from the environment. The peer of the
          connection is checked again. A refused address is a response with the refusal message as `error`.
        - `Host` is `target.authority`. TLS uses and verifies `target.host` with the default roots, without exceptions.
        - The request line contains `target.path` unchanged. Redirects are not followed: 3xx is an ordinary response.
        - The total time limit is 20 seconds, of which 10 are for the connection. At most `READ_BYTES` of the body and
          16 kB of headers are read, then the connection is closed. Nothing is decompressed (no Accept-Encoding).
        - `retry_after` is the raw header. `duration_ms` is measured with a monotonic clock.
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
    public_url: str = "",
) -> DeliveryDecision:
    """Send the message once, and store the outcome. `public_url` is the start of links to tasks.

    If the process crashes between sending and storing, the message is sent twice with the same ID. Nothing is sent if
    the webhook is removed or disabled, or if the message was already delivered, unless it is a replay.
    """
    stored = await WEBHOOKS.get(stores, order.webhook_id)
    if stored is None:
        return DeliveryDecision(step=DeliveryStep.DROP, reason="the webhook was removed")
    found = await _delivery(stores, order, public_url)
    if found is None:
        return DeliveryDecision(step=DeliveryStep.DROP, reason="the event is no longer in the log")
    if found.record.state is DeliveryState.DELIVERED and found.record.replays >= order.replay:
        return DeliveryDecision(step=DeliveryStep.DELIVERED, reason="it was already delivered")
    if not stored.record.is_active:
        dropped = DeliveryDecision(step=DeliveryStep.DROP, reason="the webhook is disabled")
        await _keep(stores, ended(found.record, dropped, now=stores.clock.now()), found.version)
        return dropped
    response = cleaned(await _sent(stores, sender, stored.record, found.record, reach), _hidden(stored.record))
    health = await note_health(stores, order.webhook_id, response)
    now = stores.clock.now()
    decision = decide_delivery(response, health, attempt=attempt, now=now, randomness=randomness)
    after = attempted(found.record, response, decision, number=attempt, now=now)
    await _keep(stores, after, found.version)
    if decision.step is DeliveryStep.DISABLE:
        with suppress(UnknownWebhook):  # removed in the meantime
            await disable(stores, order.webhook_id, decision.reason, actor=SYSTEM)
    return decision


def settle(decision: DeliveryDecision) -> str:
    """Turn a decision into the result of the task, or raise it. A delivery that was given up becomes a dead letter."""
    match decision.step:
        case DeliveryStep.RETRY:
            raise Retry(decision.reason, after=decision.delay_ms / 1000)
        case DeliveryStep.GIVE_UP | DeliveryStep.DISABLE:
            raise Unrecoverable(decision.reason)
        case DeliveryStep.DELIVERED | DeliveryStep.DROP:
            return f"{decision.step}: {decision.reason}"


async def _delivery(stores: Stores, order: DeliveryTaskArguments, public_url: str) -> StoredRecord[Delivery] | None:
    """Return the stored delivery, or a new one (version 0) from its event.

    A replay does not need the event, which might have been trimmed by then.
    """
    deliveries = deliveries_of(order.webhook_id)
    event = await _event(stores, order.seq)
    if event is not None:
        message_id = delivery_id(order.webhook_id, event)
        found = await deliveries.get(stores, message_id)
        if found is None:
            [task] = [None] if event.task_id is None else await stores.tasks.get([event.task_id])
            now = stores.clock.now()
            return StoredRecord(new_delivery(order.webhook_id, event, now=now, task=task, public_url=public_url), 0)
        return found
    matching = [stored for stored in (await deliveries.all(stores)).values() if stored.record.seq == order.seq]
    return matching[0] if matching else None


async def _event(stores: Stores, seq: int) -> Event | None:
    events = await stores.events.read(seq - 1, 1)
    return events[0] if events and events[0].seq == seq else None


async def _sent(
    stores: Stores, sender: WebhookSender, webhook: Webhook, delivery: Delivery, reach: NetworkPolicy
) -> DeliveryResponse:
    try:
        target = check_url(webhook.url, reach)
    except InvalidWebhook as refused:  # the network policy has changed since the webhook was created
        return DeliveryResponse(error=refused.detail)
    now, body = stores.clock.now(), delivery.body.encode()
    signed = signed_headers(delivery.id, now // 1000, body, webhook.signing_secrets(now))
    try:
        return await sender.send(WebhookMessage(target=target, headers={**_HEADERS, **signed}, body=body), reach)
    except Exception as broken:  # a bug in ADE must not use up all attempts within minutes
        return DeliveryResponse(error=f"it could not be sent ({type(broken).__name__})")


def _hidden(webhook: Webhook) -> list[str]:
    """Return the values to redact, in case the receiver echoes them."""
    values = [secret.value for secret in webhook.secrets]
    return [*values, *(value.removeprefix(SECRET_PREFIX) for value in values), *secrets_in_url(webhook.url)]


async def note_health(stores: Stores, webhook_id: str, response: DeliveryResponse) -> WebhookHealth:
    """Store and return the health of a webhook or channel after this response."""

    async def step() -> WebhookHealth:
        stored: StoredRecord[WebhookHealth] | None = await HEALTH.get(stores, webhook_id)
        before = WebhookHealth() if stored is None else stored.record
        after = before.after(response, now=stores.clock.now())
        if after is not before:
            put = HEALTH.put(webhook_id, after, seen=0 if stored is None else stored.version)
            await stores.documents.write([quiet(put)])
        return after

    try:
        return await decided(step)
    except StaleWrite:  # many concurrent deliveries, which recorded much the same
        return WebhookHealth()


async def _keep(stores: Stores, delivery: Delivery, seen: int) -> None:
    """Store a delivery for inspection. A write conflict means the message was sent twice; only one is stored."""
    put: DocumentWrite = quiet(deliveries_of(delivery.webhook).put(delivery.id, delivery, seen=seen))
    with suppress(StaleWrite):
        await stores.documents.write([put])
    if seen == 0 and delivery.clears:
        await clear_old(stores, delivery.webhook)


# The follower reads the event log from a named cursor and enqueues a task for every message. It is a maintenance job:
# one process runs it at a time, and repeats it immediately while it returns more than 0. Concurrent runs are harmless,
# because the task of a message has an idempotency key.


PAGE = 200  # events per batch: each can become one task per webhook


async def follow(stores: Stores, payloads: Payloads, *, limit: int = PAGE) -> int:
    """Enqueue messages for the next events and return the event count. A crash neither skips nor duplicates any."""
    end = await stores.events.last_seq()
    reached, active = (await stores.events.cursors()).get(CURSOR, 0), await _active(stores)
    if not active:
        if reached:  # without active webhooks the cursor must not block trimming
            await stores.events.advance(CURSOR, end)
        return 0
    after = max(reached, min(webhook.since for webhook in active))
    events = await stores.events.read(after, limit)
    if not events:
        return 0
    # Read again: a webhook created after the first read might match events from just before this page was read.
    active = await _active(stores)
    orders = orders_of(events, active, await _selected_tasks(stores, events, active))
    if orders:
        await enqueue(stores, payloads, orders)
    await stores.events.advance(CURSOR, events[-1].seq)
    return len(events)


async def _selected_tasks(stores: Stores, events: list[Event], active: list[Webhook]) -> dict[str, Task]:
    """Return the tasks of these events, if a webhook selects tasks. It gets no events of tasks that are gone."""
    selecting = [webhook for webhook in active if not webhook.tasks.is_empty]
    ids = {each.task_id for each in events if each.task_id and any(matches(one.events, each.type) for one in selecting)}
    found = await stores.tasks.get(sorted(ids)) if ids else []
    return {task.id: task for task in found if task is not None}


async def _active(stores: Stores) -> list[Webhook]:
    return [webhook for webhook in await list_webhooks(stores) if webhook.is_active]
