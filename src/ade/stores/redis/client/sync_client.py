"""Blocking script calls for threads without an event loop, made on the calling thread.

Through an event loop thread, the same call costs two thread switches, more than the rest of the call. Every failure
here raises NotAnswered: the caller then sends the same request through RedisClient, which handles timeouts, failovers,
and errors. That is safe, because scripts recognize a repeated request.
"""

import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import hiredis

from ade.stores.redis.client.connections import Connector
from ade.stores.redis.client.errors import FAILURES, Command, ServerError
from ade.stores.redis.client.options import RedisAddress
from ade.stores.redis.clock import ServerClock
from ade.stores.redis.scripts import script

_ANSWER_S = 2.0  # then RedisClient is used, until the deadline of the caller
_RESTING_S = 1.0  # pause after a failure; meanwhile RedisClient serves the calls
_READ = 65_536


class NotAnswered(Exception):
    """The call must go the usual way. Whether the server has seen it is unknown."""


class SyncConnection:
    """A blocking connection, used by one thread at a time."""

    def __init__(self, handle: socket.socket) -> None:
        self._socket = handle
        self._reader = hiredis.Reader(replyError=ServerError, protocolError=ConnectionError)

    @classmethod
    def open(cls, connector: Connector, address: RedisAddress) -> "SyncConnection":
        """Open an authenticated connection; on failure, leave nothing open."""
        handle = socket.create_connection(address, connector.connect_s)
        try:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if connector.tls is not None:
                handle = connector.tls.wrap_socket(handle, server_hostname=address.host)
            _limit(handle, min(_ANSWER_S, connector.settings.command_timeout_s))
            line = cls(handle)
            for answer in line.exchange(connector.greeting()):
                if isinstance(answer, ServerError):
                    raise answer
        except BaseException:
            handle.close()
            raise
        return line

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands as a pipeline and return all responses, including server errors as ServerError."""
        if commands:
            self._socket.sendall(b"".join([hiredis.pack_command(command) for command in commands]))
        answers: list[Any] = []
        while len(answers) < len(commands):
            data = self._socket.recv(_READ)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                answers.append(answer)
        if len(answers) > len(commands):
            raise ConnectionError("the server sent more than was requested")
        return answers

    def interrupt(self) -> None:
        """Wake the thread that waits for a response."""
        with suppress(OSError):  # already closed
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # the method of SSLSocket is not thread-safe

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def __del__(self) -> None:
        self.close()  # for apps that were not closed, and for forked processes


def _limit(handle: socket.socket, seconds: float) -> None:
    """Set the time limit of a send or receive. The timeout of Python needs two system calls for each."""
    if isinstance(handle, ssl.SSLSocket) or sys.platform == "win32":
        handle.settimeout(seconds)
        return
    handle.settimeout(None)
    whole, rest = divmod(round(seconds * 1e6), 1_000_000)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        handle.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", whole, rest))


class SyncClient:
    """A bounded pool of blocking connections to a single server, shared by all threads."""

    def __init__(
        self,
        connector: Connector,
        address: RedisAddress,
        clock: ServerClock,
        arguments: Callable[[int, dict[str, Any]], tuple[Any, ...]],
    ) -> None:
        self._connector = connector
        self._address = address
        self._clock = clock
        self._arguments = arguments
        self._lock = threading.Lock()
        self._lines: set[SyncConnection] = set()
        self._opening = 0  # connections that are being opened count too
        self._idle: list[SyncConnection] = []  # `pop` is atomic
        self._resting_until = 0.0
        self._closed = False

    async def run(
        self,
        name: str,
        partition: int,
        request: dict[str, Any],
        *,
        confirm: bool = False,
        patience_s: float | None = None,
    ) -> Any:
        """Call a script of `lua/` like RedisClient.run, but without ever awaiting. Raises NotAnswered."""
        if confirm:
            raise NotAnswered
        known, arguments = script(name), self._arguments(partition, request)
        answer = self._ask(("EVALSHA", known.sha, *arguments))
        if isinstance(answer, ServerError) and answer.code == "NOSCRIPT":
            answer = self._ask(("EVAL", known.text, *arguments))
        if isinstance(answer, ServerError):
            self._rest()
            raise NotAnswered from answer
        return answer

    def close(self) -> None:
        """Close all connections. Waiting calls raise NotAnswered, and RedisClient then reports the closed store."""
        self._closed = True
        self._close_idle()
        with self._lock:
            for line in self._lines:
                line.interrupt()

    def _ask(self, command: Command) -> Any:
        line = self._free_line()
        try:
            answer = self._measured(line, command)
        except BaseException as error:
            self._drop(line)
            if not isinstance(error, FAILURES):
                raise
            self._rest()
            raise NotAnswered from error
        self._idle.append(line)
        if self._closed:
            self._close_idle()
        return answer

    def _measured(self, line: SyncConnection, command: Command) -> Any:
        sent_ns = time.monotonic_ns()
        if not self._clock.due(sent_ns, self._address):
            return line.exchange([command])[0]
        answer, shown = line.exchange([command, ("TIME",)])
        if isinstance(shown, list):
            server_us = int(shown[0]) * 1_000_000 + int(shown[1])
            self._clock.observe(server_us, sent_ns, time.monotonic_ns(), self._address)
        return answer

    def _free_line(self) -> SyncConnection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_line()

    def _new_line(self) -> SyncConnection:
        if self._closed or time.monotonic() < self._resting_until:
            raise NotAnswered
        with self._lock:
            if len(self._lines) + self._opening >= self._connector.settings.connections:
                raise NotAnswered
            self._opening += 1
        opened: list[SyncConnection] = []
        try:
            opened.append(SyncConnection.open(self._connector, self._address))
        except FAILURES as error:
            self._rest()
            raise NotAnswered from error
        finally:
            with self._lock:
                self._opening -= 1
                self._lines.update(opened)
        return self._unless_closed(opened[0])

    def _unless_closed(self, line: SyncConnection) -> SyncConnection:
        """Return a new connection, unless `close` ran meanwhile: it did not see this connection to interrupt it."""
        if self._closed:
            self._drop(line)
            raise NotAnswered
        return line

    def _rest(self) -> None:
        """Pause after a failure, and close idle connections, which are probably broken too."""
        self._resting_until = time.monotonic() + _RESTING_S
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            try:
                self._drop(self._idle.pop())
            except IndexError:  # another thread was faster
                return

    def _drop(self, line: SyncConnection) -> None:
        with self._lock:
            self._lines.discard(line)
        line.close()
