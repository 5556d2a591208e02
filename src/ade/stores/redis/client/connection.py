"""One connection to a server: commands out, answers in, in the order they were asked. Nothing is ever sent twice.

It speaks the protocol itself (RESP 2) with hiredis as packer and parser. A client library does more per call than the
server does, holds more memory than the rest of a worker, and re-sends by itself.
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

    # what the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its type
        handle = transport.get_extra_info("socket")
        if handle is not None and handle.family in (socket.AF_INET, socket.AF_INET6):
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                self._take(answer)
        except ConnectionError as error:  # not the protocol we speak
            self._break_off(error)
            return
        if len(self._heard) >= self._awaited:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._break_off(error or ConnectionError("the server closed the connection"))

    # what callers do

    @property
    def is_quiet(self) -> bool:
        """Open, with nothing heard that nobody asked for."""
        return self._end is None and not self._heard

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands together and read all answers; errors of the server stand among them as ServerError."""
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
        """The next thing the server says by itself, or None when it is silent for so long."""
        try:
            async with asyncio.timeout(timeout_s):
                if not self._heard:
                    await self._expect(1)
        except TimeoutError:
            if self._end is not None:  # the system calls a peer that is gone a time-out too
                raise
            return None
        return self._heard.popleft()

    def push_to(self, take: Callable[[Any], None]) -> None:
        """From now on everything the server says is given to `take` at once, and never heard by `listen`."""
        self._take = take
        while self._heard:
            take(self._heard.popleft())

    def _expect(self, number: int) -> asyncio.Future[None]:
        """What is done when so many answers are there, or the line is at its end."""
        self._awaited = number
        self._waiter = asyncio.get_running_loop().create_future()
        if self._end is not None:
            self._wake(self._end)
        return self._waiter

    def time_out(self) -> None:
        """Whoever waits for an answer has waited long enough."""
        self._break_off(TimeoutError())

    def close(self) -> None:
        """Let it end; what was written goes out first."""
        self._end = self._end or ConnectionError("the connection was closed")
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it at once: a late answer would be taken for that of another command."""
        self._end = self._end or ConnectionError("the connection was given up")
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """End the socket of a closed event loop, which can do nothing itself any more."""
        handle = None if self._transport is None else self._transport.get_extra_info("socket")
        self._transport = None
        if handle is not None:
            try:
                handle.shutdown(socket.SHUT_RDWR)
            except (OSError, TypeError, AttributeError):  # gone already, or one of uvloop's, which cannot
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
