"""TCP and TLS connections, to a host name or to a verified address, and HTTP/1.1 over one connection."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv6Address
from typing import SupportsIndex

import h11
from msgspec import Struct

from ade.errors import ServerUnreachable

Address = IPv4Address | IPv6Address
_Opened = tuple[asyncio.Transport, asyncio.StreamReaderProtocol]
_CLOSING_S = 2.0  # for the TLS shutdown


class IncomingStream(asyncio.StreamReader):
    """A StreamReader that returns data received before a connection broke.

    It also counts unread bytes, so that a connection with unexpected data is not reused.
    """

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.unread = 0
        self.broken: Exception | None = None
        self.has_ended = False

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        came = bytes(data)
        self.unread += len(came)
        super().feed_data(came)

    def feed_eof(self) -> None:
        self.has_ended = True
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.broken = exc
        self.feed_eof()


class ByteConnection:
    """One connection. `peer` is the remote address, `name` is used in error messages."""

    def __init__(self, reader: IncomingStream, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader = reader
        self._writer = writer
        self.name = name

    @property
    def peer(self) -> str:
        return str(self._writer.get_extra_info("peername")[0])

    @property
    def is_quiet(self) -> bool:
        """Whether no data is unread and neither side has closed, so the connection can be reused."""
        return not (self._reader.unread or self._reader.has_ended or self._writer.is_closing())

    def send(self, data: bytes) -> None:
        """Buffer the data without waiting. An error surfaces when the response is read."""
        self._writer.write(data)

    async def receive(self, most: int) -> bytes:
        """Return available data, waiting if there is none; b"" at EOF. Raises ServerUnreachable if it broke."""
        data = await self._reader.read(most)
        self._reader.unread -= len(data)
        if not data and self._reader.broken is not None:
            raise ServerUnreachable(f"the connection to {self.name} broke ({why(self._reader.broken)})", was_sent=True)
        return data

    def cut(self) -> None:
        """Close the connection immediately."""
        self._writer.transport.abort()

    def abandon(self) -> None:
        """Shut down the socket of a closed event loop, which can no longer do it itself."""
        handle = self._writer.get_extra_info("socket")
        with suppress(OSError, TypeError, AttributeError):  # closed already, or a uvloop socket, which lacks shutdown
            handle.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):  # no longer needed, however it ends
            self.cut()


async def connect(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> ByteConnection:
    """Connect to one of the addresses of a host. Sets no timeout. Raises ServerUnreachable."""
    loop, server_name = asyncio.get_running_loop(), host if tls else None
    return await _connected(
        f"{host}:{port}",
        lambda protocol: loop.create_connection(protocol, host, port, ssl=tls, server_hostname=server_name),
    )


async def connect_to(
    address: Address,
    port: int,
    *,
    server_name: str,
    tls: ssl.SSLContext | None = None,
    check_peer: Callable[[str], object] = lambda peer: None,
) -> ByteConnection:
    """Connect to exactly this address, without name resolution. TLS uses and verifies `server_name`.

    `check_peer` gets the remote address before any byte is sent, and can raise. Raises ServerUnreachable.
    """
    name = f"{server_name}:{port}"
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    link = socket.socket(family, socket.SOCK_STREAM)
    loop, tls_name = asyncio.get_running_loop(), server_name if tls else None
    try:
        link.setblocking(False)
        with _told(name):
            await loop.sock_connect(link, (str(address), port))
            peer: str = link.getpeername()[0]
        check_peer(peer)
        return await _connected(
            name, lambda protocol: loop.create_connection(protocol, ssl=tls, sock=link, server_hostname=tls_name)
        )
    except BaseException:
        link.close()
        raise


async def _connected(
    name: str, open_transport: Callable[[Callable[[], asyncio.StreamReaderProtocol]], Awaitable[_Opened]]
) -> ByteConnection:
    loop, reader = asyncio.get_running_loop(), IncomingStream()
    with _told(name):
        transport, protocol = await open_transport(lambda: asyncio.StreamReaderProtocol(reader, loop=loop))
    return ByteConnection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), name)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Convert connection failures to ServerUnreachable. A TimeoutError might be that of the caller."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        if isinstance(error, TimeoutError) and error.errno is None:
            raise
        raise ServerUnreachable(f"no connection to {name} ({why(error)})") from error


def why(error: BaseException) -> str:
    """Return a short reason, without the details that Python adds."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        return "its name has no address"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


HEAD_BYTES = 32_000  # limit for everything before the body of a response
_PIECE = 65_536


class ClientRequest(Struct, frozen=True, kw_only=True):
    """A request. `headers` excludes Host and Content-Length."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Request({self.method!r})"  # the rest can be secret


class ResponseHead(Struct, frozen=True, kw_only=True):
    """The status and headers of a response."""

    status: int
    headers: Sequence[tuple[str, str]]  # names in lower case

    def header(self, name: str) -> str | None:
        """Return the value, several values joined with commas, or None."""
        values = [value for known, value in self.headers if known == name.lower()]
        return ", ".join(values) if values else None


class HttpConnection:
    """HTTP/1.1 on one connection: send, read the head, read the body, and repeat if `is_reusable`."""

    def __init__(self, connection: ByteConnection, authority: str, *, head_bytes: int = HEAD_BYTES) -> None:
        self.connection = connection
        self._authority = authority
        self._head_bytes = head_bytes
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=head_bytes)
        self._has_answered = False
        self.was_dropped = False  # closed by the server before any byte of the response

    @property
    def is_reusable(self) -> bool:
        is_between = self._http.our_state is h11.IDLE and self._http.their_state is h11.IDLE
        return is_between and self.connection.is_quiet

    def send(self, request: ClientRequest) -> None:
        """Send a request without waiting. Raises ValueError for an invalid request."""
        self._has_answered = False
        headers = [("host", self._authority), *request.headers.items()]
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers.append(("content-length", str(len(request.body))))
        try:
            start = h11.Request(method=request.method, target=request.target, headers=headers)
            parts = [self._http.send(start)]
            if request.body:
                parts.append(self._http.send(h11.Data(data=request.body)))
            parts.append(self._http.send(h11.EndOfMessage()))
        except h11.LocalProtocolError as error:
            raise ValueError(f"that is not a valid HTTP request: {error}") from None
        self.connection.send(b"".join(part for part in parts if part))

    async def head(self) -> ResponseHead:
        """Return the head of the final response, skipping 1xx. Raises ServerUnreachable."""
        left = self._head_bytes
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                if left <= 0:
                    raise self._broken(f"{self._name} sent more than {self._head_bytes:,} bytes of headers")
                left -= await self._receive(min(left, _PIECE))
            elif isinstance(event, h11.Response):
                headers = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
                return ResponseHead(status=event.status_code, headers=headers)
            elif not isinstance(event, h11.InformationalResponse):
                raise self._broken(f"{self._name} closed the connection before it answered")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body in pieces of any size. Raises ServerUnreachable if it ends early."""
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                await self._receive(_PIECE)
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                raise self._broken(f"{self._name} closed the connection before its response was complete")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            if self._http.trailing_data[0]:  # unsolicited data, which must not be read as the next response
                self.connection.cut()

    async def body(self, most_bytes: int) -> bytes:
        """Return the whole body. Raises ServerUnreachable if it exceeds `most_bytes`."""
        pieces, size = [], 0
        async for piece in self.chunks():
            size += len(piece)
            if size > most_bytes:
                raise self._broken(f"{self._name} answered with more than {most_bytes:,} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    @property
    def _name(self) -> str:
        return self.connection.name

    async def _receive(self, most: int) -> int:
        try:
            data = await self.connection.receive(most)
        except ServerUnreachable:
            self.was_dropped = not self._has_answered
            raise
        if data:
            self._has_answered = True
        else:
            self.was_dropped = not self._has_answered
        self._http.receive_data(data)
        return len(data)

    def _next(self) -> object:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            if self.was_dropped:
                raise self._broken(f"{self._name} closed the connection before it answered") from None
            raise self._broken(f"{self._name} did not send valid HTTP ({str(error)[:100]})") from None

    def _broken(self, detail: str) -> ServerUnreachable:
        self.connection.cut()
        return ServerUnreachable(detail, was_sent=True)
