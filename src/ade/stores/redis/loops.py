"""Event loops: connections belong to one each, and callers without one borrow a loop in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from ade.core.errors import StoreUnavailable, StoreUnsupported
from ade.stores.redis.nodes import Nodes

Result = TypeVar("Result")
_CLOSING_S = 2.0


def check_process(opened_by: int) -> None:
    """Connections do not survive a fork: two processes would read each other's answers."""
    if os.getpid() != opened_by:
        raise StoreUnsupported("the store was opened before a fork; open it in the process that uses it")


class LoopThread:
    """A thread with an event loop, started when it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._opened_by = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin the work there."""
        try:
            check_process(self._opened_by)
            return asyncio.run_coroutine_threadsafe(work, self._running())
        except BaseException:
            work.close()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """End everything under way there, and the thread."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or loop.is_closed():
            return
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(_CLOSING_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSING_S)
        if not thread.is_alive():
            loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # sockets are closed in the loop's next turn


class ConnectionsByLoop:
    """One set of connections for each event loop that uses the store, in the process that opened it."""

    def __init__(self, make: Callable[[], Nodes]) -> None:
        self._make = make
        self._opened_by = os.getpid()
        self._lock = threading.Lock()
        self._sets: dict[asyncio.AbstractEventLoop, Nodes] = {}
        self._closed = False

    def of_this_loop(self) -> Nodes:
        self.check_process()
        loop = asyncio.get_running_loop()
        known = self._sets.get(loop)
        if known is not None:
            return known
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            self._drop_closed_loops()
            return self._sets.setdefault(loop, self._make())

    def check_process(self) -> None:
        check_process(self._opened_by)

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            sets, self._sets = self._sets, {}
        if os.getpid() != self._opened_by:
            return  # the sockets are the parent's
        for loop, nodes in sets.items():
            if loop is asyncio.get_running_loop():
                await nodes.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(nodes.close(), loop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSING_S)
            else:
                nodes.abandon()

    def _drop_closed_loops(self) -> None:
        for loop in [loop for loop in self._sets if loop.is_closed()]:
            self._sets.pop(loop).abandon()
