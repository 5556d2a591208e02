"""An HTTP client for one server, with a pool of keep-alive connections."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlsplit

from msgspec import Struct

from ade.common.http.connection import ClientRequest, HttpConnection, ResponseHead, connect
from ade.common.text import without_password
from ade.errors import InvalidUrl, ServerUnreachable

MOST_BYTES = 128 << 20  # of a body that is not streamed
_PORTS = {"http": 80, "https": 443}
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})  # idempotent (RFC 9110)


class ClientResponse(ResponseHead, frozen=True, kw_only=True):
    """A response with its whole body."""

    body: bytes


class StreamedResponse:
    """A response whose body is read as it arrives."""

    def __init__(self, head: ResponseHead, http: HttpConnection, silence_s: float | None) -> None:
        self.status, self.headers, self.header = head.status, head.headers, head.header
        self._http = http
        self._silence_s = silence_s

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield pieces of any size. Raises ServerUnreachable if the connection breaks or goes silent."""
        async with aclosing(self._http.chunks()) as chunks:
            while True:
                try:
                    async with asyncio.timeout(self._silence_s):
                        chunk = await anext(chunks, None)
                except TimeoutError:
                    name = self._http.connection.name
                    detail = f"{name} has sent nothing for {self._silence_s:g} seconds"
                    raise ServerUnreachable(detail, was_sent=True) from None
                if chunk is None:
                    return
                yield chunk


class HttpOrigin(Struct, frozen=True):
    """The address of a server. `prefix` precedes every path."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def origin_of(url: str) -> HttpOrigin:
    """Parse the URL of a server. Raises InvalidUrl."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc) and url.isascii() and url.isprintable()
    if parts.scheme not in _PORTS or not parts.hostname or not is_plain or " " in url or port == 0:
        raise InvalidUrl(
            f"{without_password(url)[:200]!r} is not the URL of a server: write it like https://ade.example.org or"
            " http://127.0.0.1:8000, without a user, ? and #"
        )
    return HttpOrigin(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], parts.path.rstrip("/"))


class HttpClient:
    """Requests to one server. Belongs to one event loop; close it at the end.

    It ignores the environment, follows no redirects, and decompresses nothing. An idle connection is reused for
    `keep_s` seconds, which is shorter than the usual keep-alive of servers.
    """

    def __init__(
        self,
        origin_url: str,
        *,
        tls: ssl.SSLContext | None = None,
        most_connections: int = 100,
        connect_s: float = 10.0,
        keep_s: float = 4.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origin = origin_of(origin_url)
        self._tls = tls
        self._connect_s = connect_s
        self._keep_s = keep_s
        self._clock = clock
        self._places = asyncio.Semaphore(most_connections)
        self._kept: deque[tuple[HttpConnection, float]] = deque()  # most recently used last
        self._used: set[HttpConnection] = set()
        self._is_closed = False

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout: float | None = 30.0,
        is_repeatable: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> ClientResponse:
        """Send a request and return the response, whatever its status. `is_repeatable` allows sending it twice.

        Raises ServerUnreachable, with `was_sent` if the server might have executed the request.
        """
        asked = self._asked(method, target, headers, body)
        sent: list[HttpConnection] = []
        try:
            async with asyncio.timeout(timeout), self._begun(asked, is_repeatable, sent) as (http, head):
                content = await http.body(most_bytes)
        except TimeoutError:
            raise self._late(timeout, sent) from None
        return ClientResponse(status=head.status, headers=head.headers, body=content)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout: float | None = 30.0,
        silence: float | None = None,
        is_repeatable: bool = False,
    ) -> AsyncIterator[StreamedResponse]:
        """Send a request and stream the response. `timeout` is for the head, `silence` for the time between pieces.

        A stream that is not read to its end closes its connection.
        """
        asked = self._asked(method, target, headers, body)
        sent: list[HttpConnection] = []
        begun = self._begun(asked, is_repeatable, sent)
        try:
            async with asyncio.timeout(timeout):
                http, head = await begun.__aenter__()
        except TimeoutError:
            raise self._late(timeout, sent) from None
        try:
            yield StreamedResponse(head, http, silence)
        finally:
            await begun.__aexit__(None, None, None)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def close(self) -> None:
        """Close all connections. Requests in progress fail."""
        self._is_closed = True
        for http in self._used:
            http.connection.cut()
        kept = [http.connection.close() for http, _ in self._kept]
        self._kept.clear()
        await asyncio.gather(*kept)

    def abandon(self) -> None:
        """Drop the connections of a closed event loop."""
        self._is_closed = True
        for http in (*self._used, *(http for http, _ in self._kept)):
            http.connection.abandon()
        self._used.clear()
        self._kept.clear()

    def _asked(self, method: str, target: str, headers: Mapping[str, str] | None, body: bytes) -> ClientRequest:
        return ClientRequest(method=method, target=self.origin.prefix + target, headers=headers or {}, body=body)

    @asynccontextmanager
    async def _begun(
        self, request: ClientRequest, is_repeatable: bool, sent: list[HttpConnection]
    ) -> AsyncIterator[tuple[HttpConnection, ResponseHead]]:
        """Yield a connection with the response head read. Keep it afterwards if it is reusable."""
        async with self._places:
            http, head = await self._answered(request, is_repeatable, sent)
            try:
                yield http, head
            finally:
                self._give_back(http)

    async def _answered(
        self, request: ClientRequest, is_repeatable: bool, sent: list[HttpConnection]
    ) -> tuple[HttpConnection, ResponseHead]:
        kept = self._take_kept()
        if kept is not None:
            try:
                return kept, await self._ask(kept, request, sent)
            except ServerUnreachable:
                may_repeat = is_repeatable or request.method in _REPEATABLE
                if not (kept.was_dropped and may_repeat):
                    raise
        try:
            fresh = await self._connect()
        except ServerUnreachable as unreachable:
            unreachable.was_sent = bool(sent)  # on the dropped connection
            raise
        return fresh, await self._ask(fresh, request, sent)

    async def _ask(self, http: HttpConnection, request: ClientRequest, sent: list[HttpConnection]) -> ResponseHead:
        self._used.add(http)
        try:
            http.send(request)
            sent.append(http)
            return await http.head()
        except BaseException:
            self._used.discard(http)
            http.connection.cut()
            raise

    def _take_kept(self) -> HttpConnection | None:
        while self._kept:
            http, since = self._kept.pop()
            if http.is_reusable and self._clock() - since < self._keep_s:
                return http
            http.connection.cut()
        return None

    def _give_back(self, http: HttpConnection) -> None:
        self._used.discard(http)
        if not http.is_reusable or self._is_closed:
            http.connection.cut()
            return
        now = self._clock()
        self._kept.append((http, now))
        while now - self._kept[0][1] >= self._keep_s:
            self._kept.popleft()[0].connection.cut()

    async def _connect(self) -> HttpConnection:
        if self._is_closed:
            raise ServerUnreachable("this client is closed")
        tls = await self._context() if self.origin.scheme == "https" else None
        try:
            async with asyncio.timeout(self._connect_s):
                connection = await connect(self.origin.host, self.origin.port, tls=tls)
        except TimeoutError:
            where = f"{self.origin.host}:{self.origin.port}"
            raise ServerUnreachable(f"no connection to {where} within {self._connect_s:g} seconds") from None
        return HttpConnection(connection, self.origin.authority)

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)  # reads all root certificates
        return self._tls

    def _late(self, timeout: float | None, sent: list[HttpConnection]) -> ServerUnreachable:
        where = f"{self.origin.host}:{self.origin.port}"
        return ServerUnreachable(f"{where} did not answer within {timeout:g} seconds", was_sent=bool(sent))
