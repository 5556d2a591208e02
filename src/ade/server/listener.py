"""The connection of a client: bounds what uvicorn leaves unbounded, before anybody knows who asks."""

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
    """Whatever grows or takes without end is cut off, and what is no HTTP is answered with a problem."""

    head_bytes = 131_072  # of the request line and all headers
    head_s = 20.0  # from the first byte of a connection, or of a request, to the end of its headers
    rest_s = 20.0  # for the rest of a body whose request was answered, so that the answer can be read
    taken_s = 60.0  # in which a client must take at least something of what waits for it
    most = 60_000  # connections of one server; fewer where it may have fewer files open
    most_in_line = 250  # requests that were sent before the answer to the first

    _head_read = 0
    _is_in_head = True
    _turn = 0  # heads that have ended
    _hurry: asyncio.TimerHandle | None = None
    _watch: asyncio.TimerHandle | None = None
    _waiting = 0  # bytes that were still to be taken when somebody last looked
    _first: RequestResponseCycle | None = None  # in line: the one that is answered, or was

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
        if answering is not None:  # who is told otherwise is the last in line
            answering.disconnected = True
            answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._is_in_head and self._hurry is None:  # also for an empty line, which begins no message
            self._begin(self.head_s)
        turn, was_in_head = self._turn, self._is_in_head
        super().data_received(data)
        if self._turn != turn or not was_in_head:
            self._head_read = 0  # a head or a body ended in it; what of it was the next head's is not worth knowing
        elif self._is_in_head:
            self._head_read += len(data)
            if self._head_read > self.head_bytes:
                self._refuse(problem_of_fault(HttpFault.HEADERS_TOO_LARGE))

    def on_message_begin(self) -> None:
        if self._hurry is None:
            self._begin(self.head_s)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers are no headers: they come after the request was judged, and nothing would bound them."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.most_in_line:
            raise ValueError("too many requests in line")  # nothing more of what has come is read
        self._is_in_head = False
        self._turn += 1
        self._stop_hurry()
        if not self.url.startswith(b"/"):
            self.scope["ade.target"] = self.url  # type: ignore[typeddict-unknown-key] # its host is left out of the path
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        if self._hurry is not None:  # the rest of a body: what comes next is a head
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
        if self.transport.is_closing():  # what is left may be little, but it must be taken as well
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
        """Who says nothing is not told anything either."""
        self._hurry = None
        if not self.transport.is_closing():
            self.transport.close()
            self._begin_watch()

    def _begin_watch(self) -> None:
        """Who takes nothing of what waits for him must not keep it here for ever, though the connection be closed."""
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
            if answering is None or not answering.response_started:  # never in the middle of an answer
                self._tell(problem)
            self.transport.close()
            self._begin_watch()

    def _tell(self, problem: Problem) -> None:
        request_id = os.urandom(8).hex()
        body = problem.with_instance(f"urn:ade:request:{request_id}").body()
        head = (
            f"HTTP/1.1 {problem.status} {_REASONS[problem.status]}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nx-request-id: {request_id}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)


# The server: uvicorn, stopped by an event and not by signals, which are for the whole process.


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
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return LimitedConnection.most
    spared = min(max(soft // 4, _LEAST_SPARED), _MOST_SPARED)
    return min(max(soft - spared, 1), LimitedConnection.most)


@asynccontextmanager
async def serving(
    app: HttpApp, listening: socket.socket, stopping: asyncio.Event, grace_s: float, hurry: asyncio.Event
) -> AsyncIterator[None]:
    """Answer for as long as the block lasts; then `stopping` is set, and what is being answered gets its time, unless
    there is a `hurry`."""
    config = uvicorn.Config(
        app,
        http=type("BoundedConnection", (LimitedConnection,), {"most": most_connections()}),
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
