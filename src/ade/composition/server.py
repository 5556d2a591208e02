"""Starts the HTTP server of an app on a listening socket."""

import asyncio
import gc
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ade.accounts.authentication import CallerCache, authenticate, local_caller
from ade.accounts.sessions import CreatedLink, first_admin
from ade.composition.app_store import services_of_app
from ade.events.feed import EventFeed, available_since, events_after
from ade.events.hub import FeedOptions
from ade.events.metrics import Metrics
from ade.server.addresses import base_url, check_bind, hosts_of, read_networks
from ade.server.asgi import HttpApp
from ade.server.listener import listen, serving
from ade.server.rate_limits import RateLimiter, read_rates
from ade.server.request import RequestMetrics, ServerServices
from ade.server.request_body import RequestLimits
from ade.server.route_table import ROUTES
from ade.worker.instrumentation import open_spans

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.composition.app_store import OpenStore
    from ade.settings import Settings
    from ade.settings.sections import HttpSettings


_COLLECT = (20_000, 20, 100)  # garbage collection thresholds of the three generations
_STOPS = "the server is stopping; reconnect"


class RunningServer(NamedTuple):
    """A running server."""

    url: str
    login: CreatedLink | None  # on the first start: the sign-in link of the first admin

    @property
    def login_url(self) -> str | None:
        """The sign-in URL. The secret is in the fragment (#), which browsers do not send."""
        return None if self.login is None else f"{self.url}/login#{self.login.secret}"


def open_socket(settings: "HttpSettings") -> socket.socket:
    """Open the listening socket. Raises UnsafeBind, AddressInUse."""
    check_bind(settings.host, settings.auth)
    return listen(settings.host, settings.port)


@asynccontextmanager
async def serve_http(
    app: "Ade", listening: socket.socket | None = None, hurry: asyncio.Event | None = None
) -> AsyncIterator[RunningServer]:
    """Serve HTTP while the block runs. Then running requests get a grace period, unless `hurry` is set.

    Raises UnsafeBind, AddressInUse.
    """
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
                    yield RunningServer(base_url(http.host, bound.getsockname()[1]) + http.base_path, login)
                finally:
                    feed.close(_STOPS)  # open streams would keep the server from stopping
        finally:
            following.cancel()
            await asyncio.wait((following,))
            cache.close()


def spare_collections() -> None:
    """Exempt all loaded objects from garbage collection, for a process that only serves HTTP.

    They live until the process exits, and a full collection over them would delay concurrent requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)


async def _service(
    app: "Ade", opened: "OpenStore", feed: EventFeed, cache: CallerCache, stopping: asyncio.Event
) -> ServerServices:
    stores, http, requests = opened.stores, app.settings.http, RequestMetrics()
    services = services_of_app(app, opened, feed, Metrics(stores, events_after, requests.samples))
    return ServerServices(
        services=services,
        recognise=partial(authenticate, stores, cache=cache),
        rates=RateLimiter(stores, read_rates(http.rates()), times=http.all_times),
        hosts=hosts_of(http.host, http.allowed_hosts),
        trusted=read_networks(http.trusted_proxies),
        base_path=http.base_path,
        limits=RequestLimits(body_bytes=http.body_limit_kb << 10),
        local=await local_caller(stores) if http.auth == "off" else None,
        stopping=stopping,
        session_lasts_s=round(http.session_lasts_s),
        key_retention_ms=round(http.key_retention_s * 1000),
        max_subscribers=http.max_subscribers,
        max_subscribers_each=http.max_subscribers_each,
        recheck_ms=round(http.heartbeat_s * 1000),
        access_log=http.access_log,
        requests=requests,
        spans=open_spans() if app.settings.traces.enabled else None,
    )


def _feed(opened: "OpenStore", settings: "Settings") -> EventFeed:
    stores = opened.stores
    options = FeedOptions(heartbeat_s=settings.http.heartbeat_s)
    since = available_since(stores.clock, settings.events.retention_s)
    return EventFeed(stores.events, stores.wakeups, stores.clock, retained_since=since, options=options)


ENOUGH = 65_536  # open files for all streams and requests; some programs get slow without any limit


def allow_many_files() -> None:
    """Raise the open file limit to ENOUGH, or to the hard limit. Does nothing if that is not permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
