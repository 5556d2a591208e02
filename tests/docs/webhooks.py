"""The events of webhooks and notification channels."""

from ade.notifications import service as notifications_service
from ade.webhooks import dispatch
from ade.webhooks import service as webhooks_service
from tests.domain import DeliveryTaskArguments, Payloads, Stores, User, add_user, deliver, open_stores
from tests.notifications.domain import ChannelKind
from tests.webhooks.conftest import URL, Network


async def of_webhooks() -> dict[str, list[set[str]]]:
    """Every type of event, and the fields of the payloads it was seen with."""
    stores = await open_stores("memory://")
    webhook = await webhooks_service.create(stores, URL, ["*"], actor="ada")
    order = DeliveryTaskArguments(webhook_id=webhook.id, seq=await stores.events.last_seq())
    await deliver(stores, Network(), order, attempt=1, randomness=0.5)
    [delivery] = await dispatch.list_deliveries(stores, webhook.id)
    await dispatch.replay(stores, Payloads(stores.blobs), webhook.id, delivery.id, actor="ada")
    await webhooks_service.change(stores, webhook.id, webhooks_service.WebhookChanges(events=("task.*",)), actor="ada")
    await webhooks_service.rotate(stores, webhook.id, actor="ada")
    await webhooks_service.send_test(stores, webhook.id, actor="ada")
    await webhooks_service.disable(stores, webhook.id, "enough", actor="ada")
    await webhooks_service.enable(stores, webhook.id, actor="ada")
    await webhooks_service.remove(stores, webhook.id, actor="ada")
    await _notify(stores)
    seen: dict[str, list[set[str]]] = {}
    for event in await stores.events.read(0, 1_000):
        if event.type.startswith(("webhook.", "notification.")):
            seen.setdefault(event.type, []).append(set(event.payload))
    await stores.close()
    return seen


async def _notify(stores: Stores) -> None:
    await add_user(stores, User(id="ada", roles=frozenset({"reviewer"})))
    channel = await notifications_service.add_channel(stores, "ada", ChannelKind.EMAIL, "ada@example.org", actor="ada")
    changes = notifications_service.PreferenceChanges(quiet_hours="22:00-07:00")
    await notifications_service.change_preferences(stores, "ada", changes, actor="ada")
    await notifications_service.disable_channel(stores, "ada", channel.id, "gone")
    await notifications_service.remove_channel(stores, channel.id, account="ada", actor="ada")
