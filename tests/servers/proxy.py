"""A network path that can break: a TCP proxy on loopback, in a thread with a loop of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from tests.servers.blocks import Startable
from tests.servers.ports import HOST, ReservedPort
from tests.servers.waiting import PATIENCE_S, until

T = TypeVar("T")
_CHUNK = 64 * 1024


class Link:
    """One client's connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.ends = [client]
        self.deaf = False  # the path has forgotten it: open for ever, and nothing passes
        self.loses_reply = False

    def close(self) -> None:
        for end in self.ends:
            end.transport.abort()


class Proxy(Startable):
    """Stands in front of one server: `with Proxy(server.port) as proxy: ... proxy.blackhole()`

    Every verb may be called from any thread, and holds when it returns.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self.connections = 0  # all that were ever accepted
        self.lost_replies = 0
        self.requests = 0  # chunks that came from clients, whether or not they were passed on
        self.bytes_to_server = 0
        self.bytes_to_client = 0
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay_s = 0.0
        self._replies_to_lose = 0
        self._lost_word = b""
        self._loop = asyncio.new_event_loop()
        self._healthy = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._listener: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._links)

    def url(self, behind: str) -> str:
        """The URL of the server behind it, with the proxy's port in place of its own."""
        return behind.replace(f"{HOST}:{self.target_port}", self.address)

    def start(self) -> Self:
        self._thread.start()
        self._await(self._listen())
        return self

    def close(self) -> None:
        if self._thread.is_alive():
            self._await(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self._reserved.release()

    def blackhole(self) -> None:
        """Connections stay open and new ones are accepted, but nothing passes in either direction."""
        self._call(self._healthy.clear)

    def heal(self, forget: bool = False) -> None:
        """Let everything pass again, what was held back first.

        With `forget`, as when a firewall on the path lost its table: connections made so far stay open and deaf.
        """
        self._call(lambda: self._heal(forget))

    def cut(self) -> None:
        """Close all connections; new ones work."""
        self._call(self._cut)

    def drop_replies(self, count: int, containing: str = "") -> None:
        """The next `count` requests reach the server; their replies are swallowed and their connections closed.

        With `containing`, only requests with this word in them (upper or lower case) are meant.
        """
        self._call(lambda: self._lose(count, containing.upper().encode()))

    def delay(self, milliseconds: float) -> None:
        """Every request arrives this much later; 0 ends it."""
        self._call(lambda: setattr(self, "_delay_s", milliseconds / 1000))

    def wait_lost(self, count: int = 1) -> None:
        """Wait until this many replies were swallowed in all."""
        until(lambda: self.lost_replies >= count, f"{count} replies to be lost")

    def _heal(self, forget: bool) -> None:
        for link in self._links:
            link.deaf = link.deaf or forget
        self._healthy.set()

    def _cut(self) -> None:
        for link in self._links:
            link.close()

    def _lose(self, count: int, word: bytes) -> None:
        self._replies_to_lose, self._lost_word = count, word

    async def _listen(self) -> None:
        self._healthy.set()
        self._listener = await asyncio.start_server(self._accept, HOST, self.port)

    async def _end(self) -> None:
        assert self._listener is not None
        self._listener.close()
        self._cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports close their sockets in the loop's next turn

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        link = Link(to_client)
        self._links.add(link)
        try:
            await self._passable(link)
            from_server, to_server = await asyncio.open_connection(HOST, self.target_port)
            link.ends.append(to_server)
            pumps = [
                asyncio.ensure_future(self._pump(link, from_client, to_server, self._request)),
                asyncio.ensure_future(self._pump(link, from_server, to_client, self._reply)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the server refused the connection: so does the proxy, by closing it
        finally:
            self._links.discard(link)
            link.close()

    async def _pump(
        self,
        link: Link,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        passing: Callable[[Link, bytes], Coroutine[Any, Any, bool]],
    ) -> None:
        """Carry one direction until an end closes; an end that closes in a black hole closes unseen."""
        while True:
            chunk = b""
            with contextlib.suppress(ConnectionError):
                chunk = await source.read(_CHUNK)
            await self._passable(link)
            if not chunk or not await passing(link, chunk):
                return
            sink.write(chunk)
            try:
                await sink.drain()
            except ConnectionError:
                return

    async def _passable(self, link: Link) -> None:
        await self._healthy.wait()
        if link.deaf:
            await asyncio.Event().wait()

    async def _request(self, link: Link, chunk: bytes) -> bool:
        self.requests += 1
        if self._replies_to_lose > 0 and self._lost_word in chunk.upper():
            self._replies_to_lose -= 1
            link.loses_reply = True
        if self._delay_s > 0:
            await asyncio.sleep(self._delay_s)
        self.bytes_to_server += len(chunk)
        return True

    async def _reply(self, link: Link, chunk: bytes) -> bool:
        if link.loses_reply:
            self.lost_replies += 1
            return False
        self.bytes_to_client += len(chunk)
        return True

    def _call(self, change: Callable[[], object]) -> None:
        async def changed() -> None:
            change()
            await asyncio.sleep(0)  # sockets are closed in the loop's next turn

        self._await(changed())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)
