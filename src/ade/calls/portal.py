"""An event loop in a thread of its own, for callers that have none.

Nothing of it is loaded before somebody waits: commands that look at a file do without an event loop.
"""

import os
import sys
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ade.core.errors import WouldBlock

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Portal:
    """Starts with the first call. The thread is a daemon: an app that was never closed does not keep Python alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine to its end and return its result."""
        if is_loop_running():
            coroutine.close()
            raise WouldBlock
        import asyncio

        with self._lock:  # what was begun before the thread is told to end is ended by it
            future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()  # after Ctrl-C nobody waits for it any more
            raise

    def stop(self) -> None:
        """End the thread, unless it is the one that asks; it can be started again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            if loop is None or thread is None or thread is threading.current_thread():
                return
            self._loop = self._thread = None
        if self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> "asyncio.AbstractEventLoop":
        if self._loop is None or self._pid != os.getpid():  # threads do not survive a fork
            import asyncio

            self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="ade-portal", daemon=True)
            self._thread.start()
        return self._loop


def _serve(loop: "asyncio.AbstractEventLoop") -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        leftovers = asyncio.all_tasks(loop)
        for task in leftovers:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
    finally:
        loop.close()


def is_loop_running() -> bool:
    """Whether the calling thread must not be blocked."""
    asyncio = sys.modules.get("asyncio")  # who has not loaded it runs no loop; another thread may just be loading it
    running = getattr(asyncio, "_get_running_loop", None)  # without an exception, which costs more than all the rest
    return running is not None and running() is not None
