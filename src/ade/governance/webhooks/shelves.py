"""Where webhooks, how they fare, and their deliveries are kept."""

from msgspec import structs

from ade.core.documents import DocumentWrite
from ade.core.webhooks.deliveries import Delivery
from ade.core.webhooks.judging import Health
from ade.core.webhooks.names import KIND
from ade.core.webhooks.records import Webhook
from ade.governance.kept import Shelf

WEBHOOKS = Shelf(KIND, Webhook)
HEALTH = Shelf("webhook_health", Health)


def deliveries_of(webhook_id: str) -> Shelf[Delivery]:
    """A kind of their own for each webhook, so that nobody reads those of all when he wants those of one."""
    return Shelf(f"webhook_delivery.{webhook_id}", Delivery, lambda delivery: delivery.kept_until)


def quiet(write: DocumentWrite) -> DocumentWrite:
    """For what changes with every message: nobody's rules depend on it."""
    return structs.replace(write, is_quiet=True)
