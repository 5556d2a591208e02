"""The uvicorn server: its socket, its graceful shutdown, and the limits on each client connection."""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ade.errors import AddressInUse
from ade.server.asgi import HttpApp
from ade.server.problems import MEDIA_TYPE, HttpFault, Problem, problem_of_fault

_REASONS = {400: "Bad Request", 431: "Request Header Fields Too Large"}


class LimitedConnection(HttpToolsProtocol):
    """A uvicorn connection with limits on size and time, which uvicorn lacks.

    Invalid HTTP gets a problem response.
    """

    head_bytes = 131_072  # of the request line and all headers
    head_s = 20.0  # from the first byte of a connection, or of a request, to the end of its headers
    rest_s = 20.0  # for the rest of a body after the response, so that the client reads the response
    taken_s = 60.0  # a client must read some of its pending response in this time
    most = 60_000  # connections per server; fewer if the open file limit is lower
    most_in_line = 250  # pipelined requests

    _head_read = 0
    _is_in_head = True
    _turn = 0  # completed request heads
    _hurry: asyncio.TimerHandle | None = None
    _watch: asyncio.TimerHandle | None = None
    _waiting = 0  # bytes in the write buffer at the last check
    _first: RequestResponseCycle | None = None  # the pipelined request that is being answered, or was last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._begin(self.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_hurry()
        self._stop_watch()
        super().connection_lost(exc)
        self.pipeline.clear()
        answering = self._answering()
        if answering is not None:  # uvicorn notifies only the last pipelined request
            answering.disconnected = True
            answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._is_in_head and self._hurry is None:  # also for an empty line, which does not start a message
            self._begin(self.head_s)
        turn, was_in_head = self._turn, self._is_in_head
        super().data_received(data)
        if self._turn != turn or not was_in_head:
            self._head_read = 0  # a head or body ended in this data; the start of the next head is not counted
        elif self._is_in_head:
            self._head_read += len(data)
            if self._head_read > self.head_bytes:
                self._refuse(problem_of_fault(HttpFault.HEADERS_TOO_LARGE))

    def on_message_begin(self) -> None:
        if self._hurry is None:
            self._begin(self.head_s)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Ignore trailers: they arrive after the request was checked, and have no limit."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.most_in_line:
            raise ValueError("too many requests in line")  # stops the parser
        self._is_in_head = False
        self._turn += 1
        self._stop_hurry()
        if not self.url.startswith(b"/"):
            self.scope["ade.target"] = self.url  # type: ignore[typeddict-unknown-key] # uvicorn drops its host
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        if self._hurry is not None:  # the rest of a body ended; a head comes next
            self._stop_hurry()
            self._begin(self.head_s)
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._first = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._begin_watch()
        elif not self._is_in_head and self.cycle.response_complete and self._hurry is None:
            self._begin(self.rest_s)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._begin_watch()

    def resume_writing(self) -> None:
        self._stop_watch()
        if self.transport.is_closing():  # the client must also read the last bytes
            self._begin_watch()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._begin_watch()

    def send_400_response(self, msg: str) -> None:
        self._refuse(problem_of_fault(HttpFault.BAD_REQUEST, "this is no HTTP request that can be read"))

    def _begin(self, within_s: float) -> None:
        self._hurry = self.loop.call_later(within_s, self._too_slow)

    def _stop_hurry(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    def _too_slow(self) -> None:
        """Close without a response: the client has not sent a complete request."""
        self._hurry = None
        if not self.transport.is_closing():
            self.transport.close()
            self._begin_watch()

    def _begin_watch(self) -> None:
        """Abort if the client stops reading, so that pending data is not kept indefinitely, even after close."""
        self._stop_watch()
        self._waiting = self.transport.get_write_buffer_size()
        if self._waiting:
            self._watch = self.loop.call_later(self.taken_s, self._look_again)

    def _look_again(self) -> None:
        if self.transport.get_write_buffer_size() < self._waiting:
            self._begin_watch()
        else:
            self.transport.abort()

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _answering(self) -> RequestResponseCycle | None:
        return None if self._first is None or self._first.response_complete else self._first

    def _refuse(self, problem: Problem) -> None:
        self._stop_hurry()
        if not self.transport.is_closing():
            answering = self._answering()
            if answering is None or not answering.response_started:  # never in the middle of a response
                self._tell(problem)
            self.transport.close()
            self._begin_watch()

    def _tell(self, problem: Problem) -> None:
        request_id = os.urandom(8).hex()
        base_path: str = getattr(self.app, "base_path", "")  # the app is an HttpApp, except in tests
        body = problem.with_instance(f"urn:ade:request:{request_id}", base_path).body()
        head = (
            f"HTTP/1.1 {problem.status} {_REASONS[problem.status]}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nx-request-id: {request_id}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)


_BACKLOG = 2_048
_LEAST_SPARED, _MOST_SPARED = 64, 2_000  # open files reserved for the store, the log, and subprocesses
_KEEP_ALIVE_S = 30
_LAST_S = 2.0  # for cancelled requests to clean up


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers: an event stops it, because signals concern the whole process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises AddressInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it, each response takes 40 ms longer.
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
    """Return the connection limit: the open file limit minus a reserve that clients cannot use up."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return LimitedConnection.most
    spared = min(max(soft // 4, _LEAST_SPARED), _MOST_SPARED)
    return min(max(soft - spared, 1), LimitedConnection.most)


@asynccontextmanager
async def serving(
    app: HttpApp, listening: socket.socket, stopping: asyncio.Event, grace_s: float, hurry: asyncio.Event
) -> AsyncIterator[None]:
    """Serve for as long as the block lasts.

    Then set `stopping` and let requests in progress finish within the grace period, or abort them if `hurry` is set.
    """
    config = uvicorn.Config(
        app,
        http=type("BoundedConnection", (LimitedConnection,), {"most": most_connections()}),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # invalid HTTP from anyone would fill the log
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
            if server.server_state.tasks:  # cancelled: let them clean up while the store is open
                await asyncio.wait(server.server_state.tasks, timeout=_LAST_S)
        finally:
            hurrying.cancel()


async def _hang_up(server: uvicorn.Server, hurry: asyncio.Event) -> None:
    """Abort all connections when `hurry` is set."""
    await hurry.wait()
    server.force_exit = True
    for connection in list(server.server_state.connections):
        connection.transport.abort()
