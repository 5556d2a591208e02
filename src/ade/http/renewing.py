"""A request with a key that takes long stays its server's: whoever asks again meanwhile is told that it runs."""

import asyncio
from collections.abc import Awaitable, Callable


class Renewing:
    """Calls `renew` every so many seconds from now on until `end`. Most requests are over before the first time."""

    def __init__(self, renew: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._renew, self._every_s = renew, every_s
        self._ended = asyncio.Event()
        self._going: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(every_s, self._begin)

    async def end(self) -> None:
        """Afterwards nothing of it is under way."""
        self._timer.cancel()
        self._ended.set()
        if self._going is not None:
            await asyncio.wait((self._going,))

    def _begin(self) -> None:
        self._going = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        while not self._ended.is_set():
            await self._renew()
            try:
                async with asyncio.timeout(self._every_s):
                    await self._ended.wait()
            except TimeoutError:
                pass
