"""Threads for plain functions. They are daemons: one that never ends must not keep the process alive."""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context, Callable[[], Any]]


class HandlerThreads:
    """Starts a thread when none is idle. How many run at once is the caller's affair."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def call(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        """Run the function in a thread, with the caller's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((loop, future, contextvars.copy_context(), function))
        if not self._idle.acquire(blocking=False):
            self._started += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            _perform(*job)
            del job  # an idle thread keeps nothing alive
            self._idle.release()


def _perform(
    loop: asyncio.AbstractEventLoop,
    future: "asyncio.Future[Any]",
    context: contextvars.Context,
    function: Callable[[], Any],
) -> None:
    answer, error = None, None
    try:
        answer = context.run(function)
    except BaseException as raised:  # also SystemExit: a handler must not end the thread
        error = raised
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_deliver, future, answer, error)


def _deliver(future: "asyncio.Future[Any]", answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    elif isinstance(error, StopIteration):  # a future cannot carry it
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)
