"""The follower: reads the event log behind a named cursor and enqueues a task for every message.

A duty: done by one process at a time, and again at once as long as it answers more than 0. Two at once do no
harm: a message's task has a key.
"""

from ade.core.webhooks.names import CURSOR
from ade.core.webhooks.orders import orders_of
from ade.core.webhooks.records import Webhook
from ade.governance.webhooks.keeping import list_webhooks
from ade.ports import Stores
from ade.queue.enqueue import enqueue
from ade.queue.payloads import Payloads

PAGE = 200  # events at once: each may become as many tasks as there are webhooks


async def follow(stores: Stores, payloads: Payloads, *, limit: int = PAGE) -> int:
    """Look at the next events. Answers how many; a crash anywhere leaves out none and delivers none twice."""
    end = await stores.events.last_seq()
    reached, active = await stores.events.cursor(CURSOR), await _active(stores)
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
