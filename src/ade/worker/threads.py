"""Threads for plain functions. They are daemons: one that never ends must not keep the process alive."""

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

# What a handler forks off its process is not the worker: once it comes out of the handler it ends as a program would.
#
# A copy that went on would wait for ever for calls that never come, with the store's files open.


class ForkGuard:
    """A block that only the process that has entered it gets out of."""

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            leave(error)


def leave(error: BaseException | None) -> NoReturn:
    """End this process at once, with the exit code that the error would give it and without anybody's tidying up."""
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


class DaemonThreadExecutor(ThreadPoolExecutor):
    """What `asyncio.to_thread` uses in a worker's process. Its threads are daemons too: a handler that hangs in one was
    handed back long ago when the process ends, and must not keep it from ending."""

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
        """Let idle threads end. Nobody waits for the others."""
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
    except BaseException as error:  # as any executor does: it goes to whoever waits
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
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_deliver, future, answer, error)


def _deliver(future: "asyncio.Future[Any]", answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    elif issubclass(type(error), StopIteration):  # a future cannot carry it; isinstance would ask the exception itself
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)
