"""The server: uvicorn, stopped by an event and not by signals, which are for the whole process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from ade.core.errors import AddressInUse
from ade.http.app import HttpApp
from ade.http.protocol import Connection

_BACKLOG = 2_048
_LEAST_SPARED, _MOST_SPARED = 64, 2_000  # files that are for the store, the log and other programs
_KEEP_ALIVE_S = 30
_LAST_S = 2.0  # for requests that had to be cancelled


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on. Raises AddressInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sends small packets at once only then: 40 ms for each answer otherwise.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise AddressInUse(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    made.setblocking(False)
    return made


def most_connections() -> int:
    """What is left of the files that this process may have open: strangers must not take all of them."""
    try:
        import resource
    except ImportError:  # not on Windows
        return Connection.most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Connection.most
    spared = min(max(soft // 4, _LEAST_SPARED), _MOST_SPARED)
    return min(max(soft - spared, 1), Connection.most)


@asynccontextmanager
async def serving(
    app: HttpApp, listening: socket.socket, stopping: asyncio.Event, grace_s: float, hurry: asyncio.Event
) -> AsyncIterator[None]:
    """Answer for as long as the block lasts; then `stopping` is set, and what is being answered gets its time, unless
    there is a `hurry`."""
    config = uvicorn.Config(
        app,
        http=type("BoundedConnection", (Connection,), {"most": most_connections()}),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # what strangers send that is no HTTP would fill the log, without end and not as events
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]), name="ade-http")
    try:
        yield
    finally:
        stopping.set()
        server.should_exit = True
        hurrying = asyncio.create_task(_hang_up(server, hurry), name="ade-http-hurry")
        try:
            await running
            if server.server_state.tasks:  # cancelled: what they have begun is given back while the store is open
                await asyncio.wait(server.server_state.tasks, timeout=_LAST_S)
        finally:
            hurrying.cancel()


async def _hang_up(server: uvicorn.Server, hurry: asyncio.Event) -> None:
    """On everybody who is still there, once nobody wants to wait for them."""
    await hurry.wait()
    server.force_exit = True
    for connection in list(server.server_state.connections):
        connection.transport.abort()
