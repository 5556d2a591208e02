"""Real servers on loopback that do exactly what a story says, byte by byte."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress


class Visit:
    """One connection as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self._reader = reader
        self._writer = writer
        self.number = number  # counts from 1

    async def request(self) -> bytes:
        """The next request, head and body. Empty when nobody asks any more."""
        head = b""
        with suppress(asyncio.IncompleteReadError):
            head = await self._reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return head + await self._reader.readexactly(int(line.partition(b":")[2]))
        return head

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def drop(self) -> None:
        """Hang up without a farewell: the client's system tells it that the connection was reset."""
        link = self._writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Until the client has hung up."""
        while await self._reader.read(65_536):
            pass


class Server:
    """Where it is, and what it was asked, in order."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[bytes] = []
        self.visits = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(
    behave: Callable[[Server, Visit], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that behaves so towards each connection."""
    server, visits = Server(), set[asyncio.Task[None]]()

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        visits.add(task)
        server.visits += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await behave(server, Visit(reader, writer, server.visits))
        finally:
            writer.transport.abort()
            visits.discard(task)

    listening = await asyncio.start_server(visited, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for visit in [*visits]:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)


def answer(body: bytes = b"hello", *, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


async def behave_well(server: Server, visit: Visit) -> None:
    """Answer every request with its number."""
    while asked := await visit.request():
        server.asked.append(asked)
        await visit.say(answer(f"answer {len(server.asked)}".encode()))
