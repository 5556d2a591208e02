"""The store behind an app: opened once, at the first use, whichever thread or event loop that is on."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ade.ports import Stores
from ade.queue.payloads import Payloads
from ade.queue.waiting import FinishWatch


@dataclass(slots=True)
class Opened:
    """An open store and what goes with it."""

    stores: Stores
    payloads: Payloads
    _watches: WeakKeyDictionary[asyncio.AbstractEventLoop, FinishWatch] = field(default_factory=WeakKeyDictionary)

    def watch(self) -> FinishWatch:
        """The one of the running event loop."""
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            watch = self._watches[loop] = FinishWatch(self.stores)
        return watch


class Opening:
    """Whoever comes first opens; all others wait for that. After a failure the next one tries again."""

    def __init__(self, open_store: Callable[[], Awaitable[Opened]]) -> None:
        self._open_store = open_store
        self._lock = threading.Lock()
        self._pending: Future[Opened] | None = None
        self.opened: Opened | None = None

    async def open(self) -> Opened:
        while self.opened is None:
            with self._lock:
                pending, first = self._pending, self._pending is None
                if pending is None:
                    pending = self._pending = Future()
            if first:
                return await self._open_for_all(pending)
            try:
                return await asyncio.shield(asyncio.wrap_future(pending))
            except asyncio.CancelledError:
                if not pending.cancelled():
                    raise  # the caller was cancelled, not the one who opens
        return self.opened

    async def _open_for_all(self, pending: "Future[Opened]") -> Opened:
        try:
            opened = await self._open_store()
        except asyncio.CancelledError:
            self._pending = None
            pending.cancel()
            raise
        except BaseException as error:
            self._pending = None
            pending.set_exception(error)
            raise
        self.opened = opened
        pending.set_result(opened)
        return opened

    async def close(self) -> None:
        """Close what is open. Using the app again opens it again."""
        with self._lock:
            opened, self.opened, self._pending = self.opened, None, None
        if opened is not None:
            await opened.stores.close()
