"""Webhooks as tasks: every worker can send what the follower of the event log has ordered."""

import random
from typing import TYPE_CHECKING

from ade.tasks.identifiers import DELIVER, QUEUE
from ade.worker.context import Context

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.stores.ports import Stores
    from ade.webhooks.delivery import WebhookSender

AT_ONCE = 4  # messages on their way to one webhook, from all workers


def register_webhooks(app: "Ade") -> None:
    """Let this app's workers deliver messages. What sends them is loaded with the first one."""
    if DELIVER in app.registry.by_name:
        return
    deliverer = DeliveryHandler(app)

    async def deliver_message(ctx: Context, webhook_id: str, seq: int, replay: int = 0) -> str:
        return await deliverer.deliver(webhook_id, seq, replay, attempt=ctx.attempt)

    app.task(name=DELIVER, queue=QUEUE, concurrency_per_key=AT_ONCE)(deliver_message)


class DeliveryHandler:
    """Has a sender for the store that is open: an app may be opened again, on another event loop."""

    def __init__(self, app: "Ade") -> None:
        self._app = app
        self._made: tuple[Stores, WebhookSender] | None = None

    async def deliver(self, webhook_id: str, seq: int, replay: int, *, attempt: int) -> str:
        from ade.webhooks.deliveries import DeliveryTaskArguments
        from ade.webhooks.delivery import deliver, settle
        from ade.webhooks.service import reach_of

        stores = (await self._app.open()).stores
        order = DeliveryTaskArguments(webhook_id=webhook_id, seq=seq, replay=replay)
        reach = reach_of(self._app.settings.webhooks)
        judgement = await deliver(
            stores, self._sender(stores), order, attempt=attempt, dice=random.random(), reach=reach
        )
        return settle(judgement)

    def _sender(self, stores: "Stores") -> "WebhookSender":
        from ade.webhooks.sender import HttpSender

        if self._made is None or self._made[0] is not stores:
            self._made = stores, HttpSender()
        return self._made[1]
