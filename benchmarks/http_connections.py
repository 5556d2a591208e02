"""Keep-alive connections that many requests go over, as fast as they are answered or by the clock.

Plain sockets and `select`: asyncio's timers come a millisecond late, which is as long as many answers take.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence

from benchmarks.contract import Site
from benchmarks.http_requests import BadAnswer, RequestOf, answer_size, status_of

PATIENCE_SECONDS = 10.0
_AT_ONCE = 1 << 16  # more would be fresh memory for every call


class Connection:
    """One request at a time."""

    def __init__(self, site: Site) -> None:
        self._socket = socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self.file = self._socket.fileno()
        self.asked = 0.0  # the moment from which the wait for the answer counts

    def close(self) -> None:
        self._socket.close()

    def send(self, request: bytes, asked: float) -> None:
        self.asked = asked
        self._socket.sendall(request)

    def receive(self) -> bytes | None:
        """Take what has come; the answer once it is whole."""
        part = self._socket.recv(_AT_ONCE)
        if not part:
            raise BadAnswer("the server closed the connection")
        self._received += part
        size = answer_size(self._received)
        if size is None or len(self._received) < size:
            return None
        answer = bytes(self._received)
        self._received.clear()
        return answer

    def ask(self, request: bytes) -> bytes:
        """One request and its answer, with nobody else on the way."""
        self.send(request, time.perf_counter())
        while (answer := self.receive()) is None:
            pass
        return answer


class Load:
    """Requests over some connections. Raises BadAnswer for any answer with another status than `expected`."""

    def __init__(self, connections: Sequence[Connection], request_of: RequestOf, expected: int) -> None:
        self._connections = connections
        self._request_of = request_of
        self._expected = expected
        self.sent = 0

    def saturate(self, seconds: float) -> float:
        """Everybody asks again as soon as he is answered; answers per second."""
        answered, began = 0, time.perf_counter()
        until = began + seconds
        for connection in self._connections:
            self._send(connection, began)
        busy = {connection.file: connection for connection in self._connections}
        while busy:
            for connection in _ready(busy):
                if not self._is_answered(connection):
                    continue
                now = time.perf_counter()
                if now < until:
                    answered += 1
                    self._send(connection, now)
                else:
                    del busy[connection.file]
        return answered / seconds

    def pace(self, moments: Sequence[float]) -> list[float]:
        """A request at each moment, whatever became of those before; seconds from that moment to each answer.

        A request for which no connection is free waits, and its wait counts.
        """
        waits: list[float] = []
        free, busy = deque(self._connections), dict[int, Connection]()
        began = time.perf_counter()
        planned, due = deque(began + moment for moment in moments), deque[float]()
        while len(waits) < len(moments):
            now = time.perf_counter()
            while planned and planned[0] <= now:
                due.append(planned.popleft())
            while due and free:
                connection = free.popleft()
                self._send(connection, due.popleft())
                busy[connection.file] = connection
            for connection in _ready(busy, planned[0] if planned else None):
                if self._is_answered(connection):
                    waits.append(time.perf_counter() - connection.asked)
                    del busy[connection.file]
                    free.append(connection)
        return waits

    def _send(self, connection: Connection, asked: float) -> None:
        connection.send(self._request_of(self.sent), asked)
        self.sent += 1

    def _is_answered(self, connection: Connection) -> bool:
        answer = connection.receive()
        if answer is None:
            return False
        if status_of(answer) != self._expected:
            raise BadAnswer(f"answered {answer[:400]!r}")
        return True


def _ready(busy: Mapping[int, Connection], until: float | None = None) -> list[Connection]:
    """Those for which something has come; none when the moment has come before. Raises BadAnswer after long silence."""
    patience = PATIENCE_SECONDS if until is None else max(0.0, until - time.perf_counter())
    ready = select.select(list(busy), [], [], patience)[0]
    if not ready and until is None:
        raise BadAnswer(f"no answer within {PATIENCE_SECONDS:.0f} s")
    return [busy[file] for file in ready]
