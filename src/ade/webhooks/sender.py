"""The HTTP sender of webhook messages, which implements `WebhookSender`, and the handler of delivery tasks."""

import asyncio
import random
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ade.common.http.connection import ByteConnection, ClientRequest, HttpConnection, connect_to, why
from ade.errors import AddressRefused, ServerUnreachable
from ade.webhooks.deliveries import READ_BYTES, DeliveryResponse, DeliveryTaskArguments
from ade.webhooks.destinations import Address, NetworkPolicy, WebhookUrl, check_address
from ade.webhooks.dispatch import WebhookMessage, deliver, settle
from ade.webhooks.service import reach_of

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.stores.ports import Stores
    from ade.webhooks.dispatch import WebhookSender


Resolve = Callable[[str], Awaitable[Sequence[str]]]
MOST_AT_ONCE = 16  # concurrent lookups; a hanging lookup delays others only beyond this number


class DnsResolver:
    """Resolves names with the system resolver, in daemon threads: a lookup that hangs neither delays the shutdown of a
    worker nor occupies a thread of its pool.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def __call__(self, name: str) -> Sequence[str]:
        """Return the addresses of a name, in the order to try them. Raises ServerUnreachable."""
        async with self._places:
            return await _resolved(name)


async def _resolved(name: str) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[str]] = loop.create_future()

    def settle(addresses: Sequence[str], error: Exception | None) -> None:
        if not found.done():  # the caller was cancelled
            found.set_exception(error) if error else found.set_result(addresses)

    def ask() -> None:
        addresses, error = list[str](), None
        try:
            rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses = [str(row[4][0]) for row in rows]
        except (OSError, UnicodeError) as failed:
            error = ServerUnreachable(f"no connection to {name} ({why(failed)})")
        try:
            loop.call_soon_threadsafe(settle, addresses, error)
        except RuntimeError:  # the event loop was closed in the meantime
            return

    threading.Thread(target=ask, name="ade-resolve", daemon=True).start()
    return await found


TOTAL_S, CONNECT_S = 20.0, 10.0
HEAD_BYTES = 16_000
_MOST_ADDRESSES = 4  # addresses tried per name


class HttpSender:
    """Sends each message over its own connection. Bound to one event loop."""

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        total_s: float = TOTAL_S,
        connect_s: float = CONNECT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resolve = resolve or DnsResolver()
        self._tls = tls
        self._total_s = total_s
        self._connect_s = connect_s
        self._clock = clock

    async def send(self, message: WebhookMessage, reach: NetworkPolicy) -> DeliveryResponse:
        started = self._clock()
        response = _ResponseState()
        try:
            async with asyncio.timeout(self._total_s):
                await self._exchange(message, reach, response)
        except TimeoutError:
            response.error = f"it took longer than {self._total_s:g} seconds"
        except (AddressRefused, ServerUnreachable) as failed:
            response.error = failed.detail
        return response.ended(duration_ms=round((self._clock() - started) * 1000))

    async def _exchange(self, message: WebhookMessage, reach: NetworkPolicy, response: "_ResponseState") -> None:
        connection = await self._connected(message.target, reach)
        try:
            http = HttpConnection(connection, message.target.authority, head_bytes=HEAD_BYTES)
            headers = {**message.headers, "connection": "close"}
            http.send(ClientRequest(method="POST", target=message.target.path, headers=headers, body=message.body))
            head = await http.head()
            response.status, response.retry_after = head.status, head.header("retry-after") or ""
            async for piece in http.chunks():
                response.excerpt += piece[: READ_BYTES - len(response.excerpt)]
                if len(response.excerpt) == READ_BYTES:
                    return
        finally:
            connection.cut()

    async def _connected(self, target: WebhookUrl, reach: NetworkPolicy) -> ByteConnection:
        """Connect to the first address that accepts. No second name resolution can return other addresses."""
        try:
            async with asyncio.timeout(self._connect_s) as limit:
                addresses = await self._checked(target.host, reach)
                tls = await self._context() if target.scheme == "https" else None
                for number, address in enumerate(addresses):
                    others = len(addresses) - number - 1
                    try:
                        async with asyncio.timeout(_share(limit.when(), others)):
                            return await connect_to(
                                address,
                                target.port,
                                server_name=target.host,
                                tls=tls,
                                check_peer=lambda peer: check_address(peer, reach),
                            )
                    except (ServerUnreachable, TimeoutError):
                        if not others:
                            raise
        except TimeoutError:
            pass
        name = f"{target.host}:{target.port}"
        raise ServerUnreachable(f"no connection to {name} within {self._connect_s:g} seconds")

    async def _checked(self, host: str, reach: NetworkPolicy) -> Sequence[Address]:
        """Return the permitted addresses of a host. Raises AddressRefused if none is permitted."""
        found: list[Address] = []
        refused: AddressRefused | None = None
        for text in await self._addresses_of(host):
            try:
                address = check_address(text, reach)
            except AddressRefused as refusal:
                refused = refused or refusal
            else:
                if address not in found:
                    found.append(address)
        if not found:
            raise refused or ServerUnreachable(f"no connection to {host} (its name has no address)")
        return found[:_MOST_ADDRESSES]

    async def _addresses_of(self, host: str) -> Sequence[str]:
        try:
            return [str(ip_address(host))]
        except ValueError:
            return await self._resolve(host)

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)  # loads all root certificates
        return self._tls


class _ResponseState:
    """The response so far. Once there is a status, later errors do not change it."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.retry_after = ""
        self.excerpt = b""
        self.error = ""

    def ended(self, *, duration_ms: int) -> DeliveryResponse:
        return DeliveryResponse(
            status=self.status,
            error="" if self.status is not None else self.error,
            retry_after=self.retry_after,
            duration_ms=duration_ms,
            excerpt=self.excerpt,
        )


def _share(end: float | None, others: int) -> float | None:
    """Return the share of the remaining time for one address: one that never responds must not use it all."""
    if end is None:
        return None
    return (end - asyncio.get_running_loop().time()) / (others + 1)


# This module is loaded with the first message, because most workers have no webhooks.


class Deliverer:
    """Handles delivery tasks with one sender per open store: an app can be reopened on another event loop."""

    def __init__(self, app: "Ade") -> None:
        self._app = app
        self._made: tuple[Stores, WebhookSender] | None = None

    async def deliver(self, webhook_id: str, seq: int, replay: int, *, attempt: int) -> str:
        """Send one message. Raises Retry or Unrecoverable if it was not accepted."""
        stores = (await self._app.open()).stores
        order = DeliveryTaskArguments(webhook_id=webhook_id, seq=seq, replay=replay)
        reach = reach_of(self._app.settings.webhooks)
        decision = await deliver(
            stores,
            self._sender(stores),
            order,
            attempt=attempt,
            randomness=random.random(),
            reach=reach,
            public_url=self._app.settings.public_url or self._app.settings.http.base_path,
        )
        return settle(decision)

    def _sender(self, stores: "Stores") -> "WebhookSender":
        if self._made is None or self._made[0] is not stores:
            self._made = stores, HttpSender()
        return self._made[1]
