"""One connection to a server: commands are sent and responses received in the same order, without retries.

It implements RESP 2 with hiredis as packer and parser. A client library does more work per call than the server, uses
more memory than the rest of a worker, and retries on its own.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import hiredis

Command = tuple[Any, ...]


class ServerError(Exception):
    """The server's answer is an error. It begins with a word that says which."""

    @property
    def code(self) -> str:
        word = str(self).partition(" ")[0]
        return word if word.isupper() else ""


class RedisConnection(asyncio.Protocol):
    """A connection, used by one caller at a time."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(replyError=ServerError, protocolError=ConnectionError)
        self._transport: asyncio.Transport | None = None
        self._heard: deque[Any] = deque()
        self._take: Callable[[Any], None] = self._heard.append
        self._awaited = 0
        self._waiter: asyncio.Future[None] | None = None
        self._end: Exception | None = None

    @classmethod
    async def open(
        cls, host: str, port: int, *, timeout_s: float, tls: ssl.SSLContext | None = None
    ) -> "RedisConnection":
        """Connect; leaves nothing open when it fails."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            _, line = await loop.create_connection(cls, host, port, ssl=tls, server_hostname=host if tls else None)
        return line

    # callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # the uvloop transport does not inherit from this type
        handle = transport.get_extra_info("socket")
        if handle is not None and handle.family in (socket.AF_INET, socket.AF_INET6):
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                self._take(answer)
        except ConnectionError as error:  # not RESP 2
            self._break_off(error)
            return
        if len(self._heard) >= self._awaited:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._break_off(error or ConnectionError("the server closed the connection"))

    # methods for callers

    @property
    def is_quiet(self) -> bool:
        """Whether the connection is open and has no unexpected responses."""
        return self._end is None and not self._heard

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands as a pipeline and return all responses, including server errors as ServerError."""
        self.send(commands)
        if len(self._heard) < len(commands):
            await self._expect(len(commands))
        return [self._heard.popleft() for _ in commands]

    def send(self, commands: Iterable[Command]) -> None:
        if self._end is not None:
            raise self._end
        assert self._transport is not None
        self._transport.write(b"".join([hiredis.pack_command(command) for command in commands]))

    async def listen(self, timeout_s: float) -> Any:
        """Return the next message of the server, or None after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                if not self._heard:
                    await self._expect(1)
        except TimeoutError:
            if self._end is not None:  # the system reports a lost peer as a timeout too
                raise
            return None
        return self._heard.popleft()

    def push_to(self, take: Callable[[Any], None]) -> None:
        """From now on pass every message to `take` immediately; `listen` no longer returns any."""
        self._take = take
        while self._heard:
            take(self._heard.popleft())

    def _expect(self, number: int) -> asyncio.Future[None]:
        """A future that is done when `number` responses are there or the connection has ended."""
        self._awaited = number
        self._waiter = asyncio.get_running_loop().create_future()
        if self._end is not None:
            self._wake(self._end)
        return self._waiter

    def time_out(self) -> None:
        """Fail the current exchange with a TimeoutError."""
        self._break_off(TimeoutError())

    def close(self) -> None:
        """Close after all buffered commands were sent."""
        self._end = self._end or ConnectionError("the connection was closed")
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately: a late response would be taken for that of another command."""
        self._end = self._end or ConnectionError("the connection was given up")
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Shut down the socket of a closed event loop, which can no longer do so."""
        handle = None if self._transport is None else self._transport.get_extra_info("socket")
        self._transport = None
        if handle is not None:
            try:
                handle.shutdown(socket.SHUT_RDWR)
            except (OSError, TypeError, AttributeError):  # already closed, or a uvloop socket, which cannot shut down
                return

    def _break_off(self, error: Exception) -> None:
        self._end = self._end or error
        self._wake(self._end)

    def _wake(self, error: Exception | None = None) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
