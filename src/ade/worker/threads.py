"""Threads for synchronous handlers, and a guard for processes that handlers fork.

The threads are daemon threads: one that never ends must not keep the process alive.
"""

import asyncio
import contextlib
import contextvars
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, TypeVar

# A process forked by a handler is not the worker: when it leaves the handler, it exits like a program. Otherwise the
# copy would wait indefinitely for calls that never arrive, with the store's files open.


class ForkGuard:
    """A block that only the process that entered it can leave; a forked process exits instead."""

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            leave(error)


def leave(error: BaseException | None) -> NoReturn:
    """End this process immediately, with the exit code that the error implies and without any cleanup."""
    code = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            traceback.print_exception(error)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


P = ParamSpec("P")
T = TypeVar("T")
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context, Callable[[], Any]]


class HandlerThreads:
    """Starts a thread when none is idle. The caller limits the concurrency."""

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
            del job  # an idle thread must not keep objects alive
            self._idle.release()


class DaemonThreadExecutor(ThreadPoolExecutor):
    """The executor of `asyncio.to_thread` in a worker process. It uses daemon threads: when the process ends, the task
    of a hanging handler was returned to the queue long ago, and the thread must not block the exit.
    """

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._most = most
        self._asked: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._free = threading.Semaphore(0)
        self._begun = 0
        self._order = threading.Lock()
        self._is_closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        with self._order:
            if self._is_closed:
                raise RuntimeError("the worker's process ends: no more functions are run in threads")
            self._asked.put((future, partial(fn, *args, **kwargs)))
            if not self._free.acquire(blocking=False) and self._begun < self._most:
                self._begun += 1
                threading.Thread(target=self._serve, name=f"ade-to-thread-{self._begun}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End idle threads. Does not wait for busy ones."""
        with self._order:
            self._is_closed = True
        for _ in range(self._begun):
            self._asked.put(None)

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            _answer(*asked)
            del asked
            self._free.release()


def _answer(future: "Future[Any]", function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        with ForkGuard():
            answer = function()
        future.set_result(answer)
    except BaseException as error:  # like any executor: the error goes to the caller
        future.set_exception(error)


def _perform(
    loop: asyncio.AbstractEventLoop,
    future: "asyncio.Future[Any]",
    context: contextvars.Context,
    function: Callable[[], Any],
) -> None:
    answer, error = None, None
    try:
        with ForkGuard():
            answer = context.run(function)
    except BaseException as raised:  # also SystemExit: a handler must not end the thread
        error = raised
    with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
        loop.call_soon_threadsafe(_deliver, future, answer, error)


def _deliver(future: "asyncio.Future[Any]", answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    # A future cannot carry it; isinstance would call code of the exception.
    elif issubclass(type(error), StopIteration):
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)
