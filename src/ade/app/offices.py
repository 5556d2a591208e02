"""Where operations are carried out: on the store of an app, or on one that is simply open."""

from typing import TYPE_CHECKING

from ade.app.opening import Opened
from ade.operations.kit import Office
from ade.queue.payloads import Payloads
from ade.wiring import audit_place, task_defaults

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.events.feed.feed import EventFeed
    from ade.insight.metrics import Metrics
    from ade.ports import Stores
    from ade.settings import Settings


def office_of(app: "Ade", opened: Opened, feed: "EventFeed | None" = None, metrics: "Metrics | None" = None) -> Office:
    """For code on the running event loop."""
    return _office(opened, app.settings, feed, metrics)


def office_on(stores: "Stores", settings: "Settings") -> Office:
    """The same without an app."""
    store = settings.store
    payloads = Payloads(stores.blobs, store.inline_limit_kb << 10, store.payload_limit_mb << 20)
    return _office(Opened(stores, payloads, settings), settings)


def _office(
    opened: Opened, settings: "Settings", feed: "EventFeed | None" = None, metrics: "Metrics | None" = None
) -> Office:
    is_volatile = settings.store.url == "memory://" and settings.events.audit_url is None
    return Office(
        stores=opened.stores,
        payloads=opened.payloads,
        settings=settings,
        defaults=task_defaults(settings.task),
        keep=opened.keep,
        rules=opened.current_rules,
        names=lambda names: opened.side.names.including(names),
        watch=lambda: opened.side.watch,
        locks=lambda: opened.side.locks,
        audit=None if is_volatile else audit_place(settings),
        feed=feed,
        metrics=metrics,
    )
