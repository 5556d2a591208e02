"""Connections to single servers, as one event loop sees them. Nothing here sends anything twice."""

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from ade.core.errors import InvalidUrl
from ade.stores.redis.clock import ServerClock
from ade.stores.redis.failures import FAILURES
from ade.stores.redis.options import RedisOptions
from ade.stores.redis.urls import Address, Login, Place, Tls

Command = tuple[Any, ...]


class Connector:
    """Makes connections as the store URL wants them."""

    def __init__(self, place: Place, options: RedisOptions) -> None:
        self.place = place
        self.options = options
        self._context = None if place.tls is None else _context(place.tls)

    def to_server(self, address: Address) -> AbstractConnection:
        return self._connection(address, self.place.login, self.place.db)

    def to_sentinel(self, address: Address) -> AbstractConnection:
        return self._connection(address, self.place.sentinel_login, 0)

    def _connection(self, address: Address, login: Login, db: int) -> AbstractConnection:
        given: dict[str, Any] = {
            "host": address.host,
            "port": address.port,
            "username": login.username,
            "password": login.password,
            "db": db,
            "protocol": 2,  # answers are bytes, whole numbers and lists of them
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,  # every exchange as a whole is timed instead
            "socket_connect_timeout": self.options.connect_timeout_s,
            "socket_keepalive": True,
            "driver_info": None,  # or every connection begins with commands that older servers refuse
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        }
        if self._context is None:
            return Connection(**given)
        connection = SSLConnection(**given)
        connection.ssl_context.context = self._context  # made once: reading all authorities takes long
        return connection


class Node:
    """A bounded set of connections to one server. Closed ones make room for new ones."""

    def __init__(self, connector: Connector, address: Address, *, sentinel: bool, clock: ServerClock | None) -> None:
        self.address = address
        self._connect = connector.to_sentinel if sentinel else connector.to_server
        self._clock = clock
        self._slots = asyncio.Semaphore(connector.options.connections)
        self._idle: list[AbstractConnection] = []
        self._busy: set[AbstractConnection] = set()
        self._closed = False

    async def exchange(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        """Send the commands together on one connection and read all answers, errors of the server among them.

        On any other failure the connection is closed: a late answer would be taken for that of the next command.
        """
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                return await self._exchange(commands)
        except FAILURES:
            await self._discard_idle()  # they went through the same trouble
            raise

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        connection = await self._ready()
        self._busy.add(connection)
        try:
            answers = await self._converse(connection, commands)
        except BaseException:
            await _discard(connection)
            raise
        finally:
            self._busy.discard(connection)
        if self._closed:
            await _discard(connection)
        else:
            self._idle.append(connection)
        return answers

    async def _ready(self) -> AbstractConnection:
        while self._idle:
            connection = self._idle.pop()
            with suppress(*FAILURES):
                if not await connection.can_read():  # nothing there that nobody asked for, nor the end
                    return connection
            await _discard(connection)
        return await connected(self._connect(self.address))

    async def _converse(self, connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
        sent_ns = time.monotonic_ns()
        clock = self._clock if self._clock is not None and self._clock.due(sent_ns) else None
        asked = commands if clock is None else [*commands, ("TIME",)]
        await connection.send_packed_command(connection.pack_commands(asked), check_health=False)
        answers = [await _answer(connection) for _ in asked]
        if clock is not None and isinstance(shown := answers.pop(), list):
            clock.observe(int(shown[0]) * 1_000_000 + int(shown[1]), sent_ns, time.monotonic_ns())
        return answers

    async def _discard_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await _discard(connection)

    async def close(self) -> None:
        self._closed = True
        connections = [*self._idle, *self._busy]
        self._idle = []
        for connection in connections:
            with suppress(*FAILURES):
                await connection.disconnect()

    def abandon(self) -> None:
        """Let go of what a closed event loop has left behind: only the sockets can still be ended."""
        for connection in (*self._idle, *self._busy):
            writer = connection._writer  # the only way to the socket without a loop
            handle = None if writer is None else writer.transport.get_extra_info("socket")
            connection._reader = connection._writer = None
            if handle is not None:
                with suppress(OSError, TypeError):  # uvloop's have no shutdown
                    handle.shutdown(socket.SHUT_RDWR)


class Nodes:
    """All servers that one event loop talks to."""

    def __init__(self, connector: Connector, clock: ServerClock) -> None:
        self._connector = connector
        self._clock = clock
        self._servers: dict[Address, Node] = {}
        self._sentinels: dict[Address, Node] = {}
        self.learning = asyncio.Lock()
        self.learnt_at = float("-inf")
        self.rechecking: asyncio.Task[None] | None = None

    def server(self, address: Address) -> Node:
        if address not in self._servers:
            self._servers[address] = Node(self._connector, address, sentinel=False, clock=self._clock)
        return self._servers[address]

    def sentinel(self, address: Address) -> Node:
        if address not in self._sentinels:
            self._sentinels[address] = Node(self._connector, address, sentinel=True, clock=None)
        return self._sentinels[address]

    async def close(self) -> None:
        if self.rechecking is not None:
            self.rechecking.cancel()
            await asyncio.gather(self.rechecking, return_exceptions=True)
        for node in (*self._servers.values(), *self._sentinels.values()):
            await node.close()

    def abandon(self) -> None:
        for node in (*self._servers.values(), *self._sentinels.values()):
            node.abandon()


async def connected(connection: AbstractConnection) -> AbstractConnection:
    """Open it, or leave nothing open."""
    try:
        await connection.connect()  # type: ignore[no-untyped-call]  # the client has no types here
    except BaseException:
        await _discard(connection)
        raise
    return connection


async def _answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


async def _discard(connection: AbstractConnection) -> None:
    with suppress(*FAILURES):
        await connection.disconnect(nowait=True)


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidUrl(f"a certificate file named in the store URL cannot be used: {error}") from error
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
