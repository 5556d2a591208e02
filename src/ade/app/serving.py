"""The HTTP interface of an app: its store, its settings and a socket become a server."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ade.app.offices import office_of
from ade.core.web.addresses import read_networks
from ade.core.web.binding import base_url, check_bind, hosts_of
from ade.core.web.limits import RequestLimits
from ade.core.web.rates import read_rates
from ade.core.web.routes.table import ROUTES
from ade.events.feed.feed import EventFeed, kept_since
from ade.events.feed.options import FeedOptions
from ade.events.lag import events_after
from ade.governance.authenticating import CallerCache, authenticate, local_caller
from ade.governance.directory.login_links import MadeLink, first_admin
from ade.governance.web_rates import WebRates
from ade.http.app import HttpApp
from ade.http.server import listen, serving
from ade.http.service import Service
from ade.insight.metrics import Metrics

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.app.opening import Opened
    from ade.settings import HttpSettings, Settings

_COLLECT = (20_000, 20, 100)  # objects more than were freed, and rounds of the younger ones
_STOPS = "the server is about to stop; connect again"


class Served(NamedTuple):
    """A server that answers."""

    url: str
    login: MadeLink | None  # on the first start: the way in for the first admin

    @property
    def login_url(self) -> str | None:
        """The secret stands behind the #, which browsers send to nobody."""
        return None if self.login is None else f"{self.url}/login#{self.login.secret}"


def open_socket(settings: "HttpSettings") -> socket.socket:
    """Listen as the settings say. Raises UnsafeBind, AddressInUse."""
    check_bind(settings.host, settings.auth)
    return listen(settings.host, settings.port)


@asynccontextmanager
async def serve_http(
    app: "Ade", listening: socket.socket | None = None, hurry: asyncio.Event | None = None
) -> AsyncIterator[Served]:
    """Answer over HTTP for as long as the block lasts; what is being answered then gets its time, unless `hurry` is
    set. Raises UnsafeBind, AddressInUse."""
    http = app.settings.http
    with closing(listening or open_socket(http)) as bound:
        opened = await app.open()
        feed, cache, stopping = _feed(opened, app.settings), CallerCache(opened.stores), asyncio.Event()
        login = await first_admin(opened.stores) if http.auth == "required" else None
        answering = HttpApp(await _service(app, opened, feed, cache, stopping), ROUTES)
        following = asyncio.create_task(feed.run(), name="ade-feed")
        try:
            async with serving(answering, bound, stopping, http.grace_s, hurry or asyncio.Event()):
                try:
                    yield Served(base_url(http.host, bound.getsockname()[1]), login)
                finally:
                    feed.close(_STOPS)  # open streams would keep the server from stopping
        finally:
            following.cancel()
            await asyncio.wait((following,))
            cache.close()


def spare_collections() -> None:
    """For a process that is a server and nothing else, once all is loaded: that stays for good, and a full collection
    over all of it would hold up whoever asks at that moment."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)


async def _service(
    app: "Ade", opened: "Opened", feed: EventFeed, cache: CallerCache, stopping: asyncio.Event
) -> Service:
    stores, http = opened.stores, app.settings.http
    office = office_of(app, opened, feed, Metrics(stores, events_after))
    return Service(
        office=office,
        recognise=partial(authenticate, stores, cache=cache),
        rates=WebRates(stores, read_rates(http.rates()), times=http.all_times),
        hosts=hosts_of(http.host, http.allowed_hosts),
        trusted=read_networks(http.trusted_proxies),
        limits=RequestLimits(body_bytes=http.body_limit_kb << 10),
        local=await local_caller(stores) if http.auth == "off" else None,
        stopping=stopping,
        session_lasts_s=round(http.session_lasts_s),
        key_retention_ms=round(http.key_retention_s * 1000),
        max_subscribers=http.max_subscribers,
        max_subscribers_each=http.max_subscribers_each,
        recheck_ms=round(http.heartbeat_s * 1000),
        access_log=http.access_log,
    )


def _feed(opened: "Opened", settings: "Settings") -> EventFeed:
    stores = opened.stores
    options = FeedOptions(heartbeat_s=settings.http.heartbeat_s)
    since = kept_since(stores.clock, settings.events.retention_s)
    return EventFeed(stores.events, stores.hints, stores.clock, kept_since=since, options=options)
