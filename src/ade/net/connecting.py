"""Connections as bytes: made to a name, or to an address that somebody has checked."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv6Address
from typing import SupportsIndex

from ade.core.errors import ServerUnreachable

Address = IPv4Address | IPv6Address
_Opened = tuple[asyncio.Transport, asyncio.StreamReaderProtocol]
_CLOSING_S = 2.0  # for the farewell of TLS


class Incoming(asyncio.StreamReader):
    """What has come. Unlike its parent it hands out what came before a connection broke, and can tell that something
    lies here which nobody has read."""

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


class Connection:
    """One connection. `peer` is the address at its other end, `name` is how errors call that."""

    def __init__(self, reader: Incoming, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader = reader
        self._writer = writer
        self.name = name

    @property
    def peer(self) -> str:
        return str(self._writer.get_extra_info("peername")[0])

    @property
    def is_quiet(self) -> bool:
        """Nothing has come and nobody has hung up: it can be used for something new."""
        return not (self._reader.unread or self._reader.has_ended or self._writer.is_closing())

    def send(self, data: bytes) -> None:
        """Never waits: what the other side does not take yet is kept. Trouble shows when its answer is read."""
        self._writer.write(data)

    async def receive(self, most: int) -> bytes:
        """What has come, or the next that comes; empty at an orderly end. Raises ServerUnreachable when it broke."""
        data = await self._reader.read(most)
        self._reader.unread -= len(data)
        if not data and self._reader.broken is not None:
            raise ServerUnreachable(f"the connection to {self.name} broke ({why(self._reader.broken)})", was_sent=True)
        return data

    def cut(self) -> None:
        """End it at once."""
        self._writer.transport.abort()

    def abandon(self) -> None:
        """End the socket of a closed event loop, which can do nothing itself any more."""
        handle = self._writer.get_extra_info("socket")
        with suppress(OSError, TypeError, AttributeError):  # gone already, or one of uvloop's, which cannot
            handle.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):  # it is of no use any more, however it ends
            self.cut()


async def connect(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> Connection:
    """A connection to one of the addresses of a name. Raises ServerUnreachable; how long it takes is the caller's."""
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
) -> Connection:
    """A connection to this very address; nothing is resolved. `server_name` is what TLS names and checks.

    `check_peer` is given the address at the other end, and may raise, before a byte is sent.
    Raises ServerUnreachable.
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
) -> Connection:
    loop, reader = asyncio.get_running_loop(), Incoming()
    with _told(name):
        transport, protocol = await open_transport(lambda: asyncio.StreamReaderProtocol(reader, loop=loop))
    return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), name)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Failures to connect, as ADE tells them. A TimeoutError may be the caller's own."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        if isinstance(error, TimeoutError) and error.errno is None:
            raise
        raise ServerUnreachable(f"no connection to {name} ({why(error)})") from error


def why(error: BaseException) -> str:
    """In few words, without what Python adds."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        return "its name leads to no address"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
