"""Names become addresses, once for each message, on threads that nobody waits for at the end."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence

from ade.core.errors import ServerUnreachable
from ade.net.connecting import why

Resolve = Callable[[str], Awaitable[Sequence[str]]]
MOST_AT_ONCE = 16  # names whose servers do not answer hold up others only beyond this many


class Resolver:
    """Asks the system. Its threads are daemons: one that is stuck in there neither stops a worker from ending nor takes
    a place from other work."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def __call__(self, name: str) -> Sequence[str]:
        """The addresses of a name, in the order to try them. Raises ServerUnreachable."""
        async with self._places:
            return await _resolved(name)


async def _resolved(name: str) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[str]] = loop.create_future()

    def settle(addresses: Sequence[str], error: Exception | None) -> None:
        if not found.done():  # nobody waits any more
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
        except RuntimeError:  # the loop has ended meanwhile
            return

    threading.Thread(target=ask, name="ade-resolve", daemon=True).start()
    return await found
