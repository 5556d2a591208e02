"""Connections to servers, pools of them by server and event loop, and a thread that runs an event loop for others.

Nothing here retries a command. RESP 2 is implemented with hiredis as packer and parser: a client library does more
work per call than the server, uses more memory than the rest of a worker, and retries on its own.
"""

import asyncio
import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar, cast

import hiredis

from ade.errors import InvalidUrl, StoreUnavailable, StoreUnsupported
from ade.settings.sections import RedisSettings
from ade.stores.redis.client.errors import FAILURES, Command, ServerError
from ade.stores.redis.client.options import RedisAddress, RedisLocation, RedisLogin, TlsOptions
from ade.stores.redis.clock import ServerClock

_NEVER = float("inf")
_CONNECT_S = 2.0
_CLOSING_S = 2.0
Result = TypeVar("Result")


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
        self._end = self._end or ConnectionError("the connection was dropped")
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


class Connector:
    """Opens connections with the login and TLS options of the store URL."""

    def __init__(self, place: RedisLocation, settings: RedisSettings) -> None:
        self.place = place
        self.settings = settings
        self.connect_s = min(_CONNECT_S, settings.command_timeout_s)
        self.tls = None if place.tls is None else _context(place.tls)

    async def to_server(self, address: RedisAddress) -> RedisConnection:
        return await self._connect(address, self.greeting())

    async def to_sentinel(self, address: RedisAddress) -> RedisConnection:
        return await self._connect(address, _login(self.place.sentinel_login))

    def greeting(self) -> list[Command]:
        """The first commands on a connection: AUTH and SELECT, if needed."""
        return [*_login(self.place.login), *([("SELECT", self.place.db)] if self.place.db else [])]

    async def _connect(self, address: RedisAddress, greeting: list[Command]) -> RedisConnection:
        """Open an authenticated connection; on failure, leave nothing open."""
        line = await RedisConnection.open(address.host, address.port, timeout_s=self.connect_s, tls=self.tls)
        try:
            for answer in await line.exchange(greeting) if greeting else []:
                if isinstance(answer, ServerError):
                    raise answer
        except BaseException:
            line.abort()
            raise
        return line


def _login(login: RedisLogin) -> list[Command]:
    if login.password is None:
        return []
    return [("AUTH", login.username, login.password) if login.username else ("AUTH", login.password)]


class DeadlineTimer:
    """One event loop timer for many deadlines, most of which are met: it is rescheduled only after it fires.

    A timer for each exchange would cost 10% of a small exchange.
    """

    def __init__(self, ring: Callable[[float], float | None]) -> None:
        self._ring = ring  # called with the current time; returns when to fire again
        self._timer: asyncio.TimerHandle | None = None
        self._moment = _NEVER

    def set_for(self, moment: float) -> None:
        """Fire at this monotonic time or earlier. The clock of a loop does not advance while the loop is busy."""
        if self._moment <= moment:
            return
        self.cancel()
        self._moment = moment
        self._timer = asyncio.get_running_loop().call_later(moment - time.monotonic(), self._rung)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._moment = None, _NEVER

    def _rung(self) -> None:
        self.cancel()
        again = self._ring(time.monotonic())
        if again is not None:
            self.set_for(again)


class ServerPool:
    """A bounded pool of connections to one server. Closed connections free their slot."""

    def __init__(
        self, connector: Connector, address: RedisAddress, *, sentinel: bool, clock: ServerClock | None
    ) -> None:
        self.address = address
        self._connect = connector.to_sentinel if sentinel else connector.to_server
        self._clock = clock
        self._slots = asyncio.Semaphore(connector.settings.connections)
        self._idle: list[RedisConnection] = []
        self._busy: dict[RedisConnection, float] = {}  # connection -> deadline of its responses
        self._alarm = DeadlineTimer(self._end_overdue)
        self._closed = False

    async def exchange(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        """Send the commands as a pipeline on one connection, and return all responses, including server errors.

        On any other failure the connection is closed: a late response would be taken for that of the next command.
        """
        until = time.monotonic() + timeout_s
        try:
            if self._idle and not self._slots.locked():
                await self._slots.acquire()  # does not wait
            else:
                async with asyncio.timeout(timeout_s):
                    await self._slots.acquire()
            try:
                line = self._idle_line() or await self._new_line(until)
                return await self._converse(line, commands, until)
            finally:
                self._slots.release()
        except FAILURES:
            self._discard_idle()  # they are probably broken too
            raise

    async def _converse(self, line: RedisConnection, commands: Sequence[Command], until: float) -> list[Any]:
        sent_ns = time.monotonic_ns()
        clock = self._clock if self._clock is not None and self._clock.due(sent_ns, self.address) else None
        self._busy[line] = until
        self._alarm.set_for(until)
        try:
            answers = await line.exchange([*commands, ("TIME",)] if clock is not None else commands)
        except BaseException:
            line.abort()
            raise
        finally:
            del self._busy[line]
        if self._closed:
            line.abort()
        else:
            self._idle.append(line)
        if clock is not None and isinstance(shown := answers.pop(), list):
            clock.observe(int(shown[0]) * 1_000_000 + int(shown[1]), sent_ns, time.monotonic_ns(), self.address)
        return answers

    def _idle_line(self) -> RedisConnection | None:
        while self._idle:
            line = self._idle.pop()
            if line.is_quiet:
                return line
            line.abort()
        return None

    async def _new_line(self, until: float) -> RedisConnection:
        async with asyncio.timeout(until - time.monotonic()):
            return await self._connect(self.address)

    def _end_overdue(self, now: float) -> float | None:
        """End overdue exchanges. Return the next deadline, or None if no exchange is in progress."""
        for line, until in self._busy.items():
            if until <= now:
                line.time_out()
        return min((until for until in self._busy.values() if until > now), default=None)

    def _discard_idle(self) -> None:
        idle, self._idle = self._idle, []
        for line in idle:
            line.abort()

    def close(self) -> None:
        self._closed = True
        self._alarm.cancel()
        self._discard_idle()
        for line in self._busy:
            line.abort()

    def abandon(self) -> None:
        """Shut down the sockets of a closed event loop, which cannot close its connections."""
        for line in (*self._idle, *self._busy):
            line.abandon()


class ServerPools:
    """The pools of one event loop, by server."""

    def __init__(self, connector: Connector, clock: ServerClock) -> None:
        self._connector = connector
        self._clock = clock
        self._servers: dict[RedisAddress, ServerPool] = {}
        self._sentinels: dict[RedisAddress, ServerPool] = {}
        self.learning = asyncio.Lock()
        self.learnt_at = float("-inf")
        self.rechecking: asyncio.Task[None] | None = None

    def server(self, address: RedisAddress) -> ServerPool:
        if address not in self._servers:
            self._servers[address] = ServerPool(self._connector, address, sentinel=False, clock=self._clock)
        return self._servers[address]

    def sentinel(self, address: RedisAddress) -> ServerPool:
        if address not in self._sentinels:
            self._sentinels[address] = ServerPool(self._connector, address, sentinel=True, clock=None)
        return self._sentinels[address]

    async def close(self) -> None:
        if self.rechecking is not None:
            self.rechecking.cancel()
            await asyncio.gather(self.rechecking, return_exceptions=True)
        for node in (*self._servers.values(), *self._sentinels.values()):
            node.close()

    def abandon(self) -> None:
        for node in (*self._servers.values(), *self._sentinels.values()):
            node.abandon()


def _context(tls: TlsOptions) -> ssl.SSLContext:
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


# Event loops: each has its own connections, and callers without a loop use one in a separate thread.


def check_process(opened_by: int) -> None:
    """Raise StoreUnsupported after a fork: two processes would read each other's responses."""
    if os.getpid() != opened_by:
        raise StoreUnsupported("the store was opened before a fork; open it in the process that uses it")


class LoopThread:
    """A thread with an event loop, started on first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._opened_by = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine on the loop. Raises StoreUnavailable after `close`."""
        try:
            check_process(self._opened_by)
            return asyncio.run_coroutine_threadsafe(work, self._running())
        except BaseException:
            work.close()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Cancel all tasks of the loop, and stop the thread."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or loop.is_closed():
            return
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(_CLOSING_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSING_S)
        if not thread.is_alive():
            loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # sockets are closed in the next iteration of the loop


class ConnectionsByLoop:
    """One set of pools for each event loop that uses the store, in the process that opened the store."""

    def __init__(self, make: Callable[[], ServerPools]) -> None:
        self._make = make
        self._opened_by = os.getpid()
        self._lock = threading.Lock()
        self._sets: dict[asyncio.AbstractEventLoop, ServerPools] = {}
        self._closed = False

    def of_this_loop(self) -> ServerPools:
        self.check_process()
        loop = asyncio.get_running_loop()
        known = self._sets.get(loop)
        if known is not None:
            return known
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            self._drop_closed_loops()
            return self._sets.setdefault(loop, self._make())

    def check_process(self) -> None:
        check_process(self._opened_by)

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            sets, self._sets = self._sets, {}
        if os.getpid() != self._opened_by:
            return  # the sockets belong to the parent process
        for loop, nodes in sets.items():
            if loop is asyncio.get_running_loop():
                await nodes.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(nodes.close(), loop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSING_S)
            else:
                nodes.abandon()

    def _drop_closed_loops(self) -> None:
        for loop in [loop for loop in self._sets if loop.is_closed()]:
            self._sets.pop(loop).abandon()
