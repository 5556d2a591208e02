"""The log of deliveries: what was sent to a webhook, what it answered, and sending it once more."""

from ade.core.events import Event
from ade.core.records import Task
from ade.core.webhooks.deliveries import Delivery, State, oldest_beyond, replayed
from ade.core.webhooks.errors import InvalidWebhook, UnknownWebhook
from ade.core.webhooks.orders import replay_order
from ade.core.webhooks.records import WEBHOOK_REPLAYED, about
from ade.governance.kept import Kept, decided
from ade.governance.webhooks.keeping import find
from ade.governance.webhooks.shelves import deliveries_of, quiet
from ade.ports import Stores
from ade.queue.enqueue import enqueue
from ade.queue.payloads import Payloads

Place = tuple[int, int]


async def list_deliveries(
    stores: Stores, webhook_id: str, *, state: State | None = None, before: Place | None = None, limit: int = 50
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


async def find_delivery(stores: Stores, webhook_id: str, delivery_id: str) -> Kept[Delivery]:
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
