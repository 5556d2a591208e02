"""The thread of a portal: an event loop in a daemon thread. Imported only when needed, as it loads asyncio."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class PortalThread:
    """Runs coroutines for threads without an event loop. It belongs to the process that created it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="ade-portal", daemon=True)
        self._thread.start()

    @property
    def is_usable(self) -> bool:
        """Whether it runs in this process, because threads do not survive a fork."""
        return self._pid == os.getpid()

    @property
    def is_current(self) -> bool:
        return self._thread is threading.current_thread()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Cancel the remaining tasks and wait for the thread to end."""
        if self.is_usable:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            leftovers = asyncio.all_tasks(loop)
            for task in leftovers:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
        finally:
            loop.close()
