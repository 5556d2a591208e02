"""Tasks that send messages: one for each webhook and event, and none about the sending itself."""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from ade.core.events import Event
from ade.core.records import SYSTEM, Task
from ade.core.retry import Backoff
from ade.core.webhooks.deliveries import Delivery, delivery_id
from ade.core.webhooks.judging import ATTEMPTS
from ade.core.webhooks.matching import matches
from ade.core.webhooks.names import DELIVER, MARK, QUEUE, is_own
from ade.core.webhooks.records import WEBHOOK_TESTED, Webhook

TIMEOUT_MS = 60_000  # of a run; the sender gives up sooner
RESULT_KEPT_MS = 86_400_000
BACKOFF = Backoff(base_ms=5_000, multiplier=8.0, cap_ms=86_400_000)  # where a run fails before there is a judgement


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of such a task. What is sent is not among them: nobody can have something else signed."""

    webhook_id: str
    seq: int
    replay: int = 0  # which one; 0: the first time


def wants(webhook: Webhook, event: Event) -> bool:
    is_told = webhook.is_active and event.seq > webhook.since
    return is_told and not is_own(event) and (matches(webhook.events, event.type) or _is_test_of(webhook, event))


def _is_test_of(webhook: Webhook, event: Event) -> bool:
    """A test is told to the webhook that it tests, whatever that wants otherwise."""
    return event.type == WEBHOOK_TESTED and event.payload.get("webhook") == webhook.id


def orders_of(events: Sequence[Event], webhooks: Iterable[Webhook]) -> list[Task]:
    """A task for each message that these events lead to, in their order. The same again makes the same tasks."""
    active = [webhook for webhook in webhooks if webhook.is_active]
    return [
        _task(Order(webhook_id=webhook.id, seq=event.seq), delivery_id(webhook.id, event), event.type, event.at)
        for event in events
        for webhook in active
        if wants(webhook, event)
    ]


def replay_order(delivery: Delivery) -> Task:
    """The task of a delivery that was marked as replayed. The same replay makes one task."""
    order = Order(webhook_id=delivery.webhook, seq=delivery.seq, replay=delivery.replays)
    return _task(order, delivery.id, delivery.type, delivery.updated_at)


def _task(order: Order, message_id: str, event_type: str, at: int) -> Task:
    key = f"webhook:{message_id}:{order.replay}"
    return Task(
        id=_task_id(at, key),
        name=DELIVER,
        queue=QUEUE,
        args=Raw(msgspec.json.encode(order)),
        description=f"{event_type} to webhook {order.webhook_id}",
        tags=(f"webhook:{order.webhook_id}",),
        idempotency_key=key,
        concurrency_key=order.webhook_id,
        source=SYSTEM,
        timeout_ms=TIMEOUT_MS,
        max_attempts=ATTEMPTS,
        backoff=BACKOFF,
        result_ttl_ms=RESULT_KEPT_MS,
    )


def _task_id(at: int, key: str) -> str:
    """A UUID of version 8: a time, as in other ids, and a hash in place of chance."""
    time, rest = f"{at & 0xFFFFFFFFFFFF:012x}", hashlib.sha256(key.encode()).hexdigest()
    return f"{time[:8]}-{time[8:]}-{MARK}{rest[:3]}-8{rest[3:6]}-{rest[6:18]}"
