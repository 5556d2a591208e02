"""Requests and responses over one connection, one after the other. What is read is bounded."""

from collections.abc import AsyncGenerator, Mapping, Sequence

import h11
from msgspec import Struct

from ade.core.errors import ServerUnreachable
from ade.net.connecting import Connection

HEAD_BYTES = 32_000  # of a response, with all that comes before its body
_PIECE = 65_536


class Request(Struct, frozen=True, kw_only=True):
    """`headers` has all but Host and Content-Length."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Request({self.method!r})"  # the rest may be secret


class Head(Struct, frozen=True, kw_only=True):
    status: int
    headers: Sequence[tuple[str, str]]  # names in lower case

    def header(self, name: str) -> str | None:
        """The value, those of several with commas between them; None without any."""
        values = [value for known, value in self.headers if known == name.lower()]
        return ", ".join(values) if values else None


class HttpConnection:
    """Send a request, read the head, read the body; then, if `is_reusable`, the next one."""

    def __init__(self, connection: Connection, authority: str, *, head_bytes: int = HEAD_BYTES) -> None:
        self.connection = connection
        self._authority = authority
        self._head_bytes = head_bytes
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=head_bytes)
        self._has_answered = False
        self.was_dropped = False  # closed by the other side before a byte of the answer had come

    @property
    def is_reusable(self) -> bool:
        is_between = self._http.our_state is h11.IDLE and self._http.their_state is h11.IDLE
        return is_between and self.connection.is_quiet

    def send(self, request: Request) -> None:
        """Never waits. Raises ValueError for what is no valid request."""
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
            raise ValueError(f"that is no valid HTTP request: {error}") from None
        self.connection.send(b"".join(part for part in parts if part))

    async def head(self) -> Head:
        """The head of the final response; those before it are skipped. Raises ServerUnreachable."""
        left = self._head_bytes
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                if left <= 0:
                    raise self._broken(f"{self._name} sent more than {self._head_bytes:,} bytes of headers")
                left -= await self._receive(min(left, _PIECE))
            elif isinstance(event, h11.Response):
                headers = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
                return Head(status=event.status_code, headers=headers)
            elif not isinstance(event, h11.InformationalResponse):
                raise self._broken(f"{self._name} hung up before it answered")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes, in pieces of any size. Raises ServerUnreachable when it ends too soon."""
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                await self._receive(_PIECE)
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                raise self._broken(f"{self._name} hung up before its answer was whole")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            if self._http.trailing_data[0]:  # something nobody asked for, which must not answer the next request
                self.connection.cut()

    async def body(self, most_bytes: int) -> bytes:
        """All of it. Raises ServerUnreachable when there is more than that."""
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
                raise self._broken(f"{self._name} hung up before it answered") from None
            raise self._broken(f"{self._name} did not answer as HTTP has it ({str(error)[:100]})") from None

    def _broken(self, detail: str) -> ServerUnreachable:
        self.connection.cut()
        return ServerUnreachable(detail, was_sent=True)
