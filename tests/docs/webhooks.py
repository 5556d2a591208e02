"""What is told of webhooks."""

from ade.core.webhooks.orders import Order
from ade.governance.webhooks import keeping, log
from ade.governance.webhooks.delivering import deliver
from ade.queue.payloads import Payloads
from ade.wiring import open_stores
from tests.governance.webhooks.conftest import URL, Network


async def of_webhooks() -> dict[str, list[set[str]]]:
    """Every type of event, and the fields of the payloads it was seen with."""
    stores = await open_stores("memory://")
    webhook = await keeping.create(stores, URL, ["*"], actor="ada")
    order = Order(webhook_id=webhook.id, seq=await stores.events.last_seq())
    await deliver(stores, Network(), order, attempt=1, dice=0.5)
    [delivery] = await log.list_deliveries(stores, webhook.id)
    await log.replay(stores, Payloads(stores.blobs), webhook.id, delivery.id, actor="ada")
    await keeping.change(stores, webhook.id, keeping.WebhookChanges(events=("task.*",)), actor="ada")
    await keeping.rotate(stores, webhook.id, actor="ada")
    await keeping.send_test(stores, webhook.id, actor="ada")
    await keeping.disable(stores, webhook.id, "enough", actor="ada")
    await keeping.enable(stores, webhook.id, actor="ada")
    await keeping.remove(stores, webhook.id, actor="ada")
    seen: dict[str, list[set[str]]] = {}
    for event in await stores.events.read(0, 1_000):
        if event.type.startswith("webhook."):
            seen.setdefault(event.type, []).append(set(event.payload))
    await stores.close()
    return seen
