"""The live event feed: one reader of the log in each process, and any number of subscribers.

    feed = EventFeed(stores.events, stores.hints, stores.clock, kept_since=kept_since(stores.clock, retention_s))
    running = asyncio.create_task(feed.run())           # with the server's other loops; ends by `close` or cancelling
    with feed.subscribe(parse_filter(fields), start_after(last_event_id, after)) as subscription:
        async for item in subscription:                 # Batch, Gap, Heartbeat, at last End
            await send(item_text(item, retry_ms=...))
    feed.close("the server shuts down")                 # everybody gets an End behind what he has still to read

The filter says what a subscriber wants, not what it may see: check that before it subscribes.
"""

from ade.events.feed.feed import EventFeed as EventFeed
from ade.events.feed.feed import kept_since as kept_since
from ade.events.feed.options import FeedOptions as FeedOptions
from ade.events.feed.subscription import Subscription as Subscription
