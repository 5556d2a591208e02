"""Reads on separate connections and threads, so that they never wait for a write and never block an event loop."""

import asyncio
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from ade.errors import StoreUnavailable
from ade.stores.sqlite.connection import check_process, connect_reader, translated
from ade.stores.sqlite.file_identity import CHECK_EVERY_S
from ade.stores.sqlite.writer import WriteChecks, Writer

ReadResult = TypeVar("ReadResult")
_THREADS, _SCAN_THREADS = 2, 1
_STEPS = 20_000  # of SQLite between two checks of a statement: some milliseconds at most
_LONGEST_S = 30.0  # of one read
_LONGEST_PAUSE_S = 0.05
_NICE = 10  # of the thread that scans; with a higher one, it would hold the interpreter lock for longer


class _Read(NamedTuple):
    function: Callable[[apsw.Connection], Any]
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Any]"
    has_limit: bool = True


class FileReaders:
    """Short read transactions on a few threads. Scans have a lane of their own: other reads never wait behind them."""

    def __init__(self, path: Path, checks: WriteChecks) -> None:
        self._pid = os.getpid()
        self._reads = _Lane("ade-reader", path, checks, _THREADS)
        self._scans = _Lane("ade-scan", path, checks, _SCAN_THREADS, pauses=True)

    async def call(self, function: Callable[[apsw.Connection], ReadResult], *, has_limit: bool = True) -> ReadResult:
        """Read in one transaction. If the caller is cancelled, the statement stops; without `has_limit`, only then.
        Raises StoreUnavailable."""
        check_process(self._pid)
        return await self._reads.call(function, has_limit=has_limit)

    async def scan(self, function: Callable[[apsw.Connection], ReadResult]) -> ReadResult:
        """The same for a read that can examine thousands of rows. Keep it short: scans take turns, and pause as long as
        they work, which leaves the processor to everything else."""
        check_process(self._pid)
        return await self._scans.call(function)

    def close(self) -> None:
        """Finish the queued reads, then stop the threads."""
        self._reads.close()
        self._scans.close()


class _Lane:
    """Threads with a connection each, which are started on demand.

    A `concurrent.futures` pool would do the same, but doubles the cost of reading one record.
    """

    def __init__(self, name: str, path: Path, checks: WriteChecks, most: int, *, pauses: bool = False) -> None:
        self._name = name
        self._path = path
        self._checks = checks
        self._checked_at = time.monotonic()  # it was just opened
        self._most = most
        self._pauses = pauses
        self._asked: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()  # None stops a thread
        self._order = threading.Lock()
        self._unanswered = 0
        self._closed = False
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    async def call(self, function: Callable[[apsw.Connection], ReadResult], *, has_limit: bool = True) -> ReadResult:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ReadResult] = loop.create_future()
        self._ask(_Read(function, loop, answer, has_limit))
        return await answer

    def _ask(self, read: _Read) -> None:
        with self._order:  # no read can be queued after the stop marker
            if self._closed:
                raise StoreUnavailable("the store was closed; open a new one")
            if len(self._threads) < min(self._unanswered + 1, self._most):
                self._start_thread()
            self._unanswered += 1
            self._asked.put(read)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system is out of threads
            if not self._threads:
                raise StoreUnavailable(f"{self._path} cannot be read: {error}") from error
            return  # the existing threads serve all reads
        self._threads.append(thread)

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        limit = _StatementLimit()
        if self._pauses:
            _lower_priority()
        while (read := self._asked.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            began = time.monotonic() if self._pauses else 0.0
            try:
                if not read.answer.cancelled():
                    connection = connection or self._connect(limit)
                    self._check_file()
                    limit.begin(read)
                    with connection:  # one snapshot for all statements of the read
                        result = read.function(connection)
            except apsw.InterruptError:
                error = StoreUnavailable(f"a read took longer than {_LONGEST_S:g} s and was stopped; narrow the filter")
            except apsw.Error as trouble:
                error = translated(trouble, str(self._path))
                error.__cause__ = trouble
            except BaseException as trouble:
                error = trouble
            with self._order:
                self._unanswered -= 1
            with suppress(RuntimeError):  # its event loop is closed, so no caller waits
                read.loop.call_soon_threadsafe(_settle, read.answer, result, error)
            limit.answer = None
            del read, result, error  # otherwise they stay in memory until the next read
            if self._pauses:
                self._stopped.wait(min(time.monotonic() - began, _LONGEST_PAUSE_S))
        if connection is not None:
            connection.close()

    def _check_file(self) -> None:
        """Raise StoreReplaced if the file is not the one that was opened. Reads are frequent, so only now and then."""
        now = time.monotonic()
        if now - self._checked_at > CHECK_EVERY_S:
            self._checks.check_identity()  # after an error, the next read checks again
            self._checked_at = now

    def _connect(self, limit: "_StatementLimit") -> apsw.Connection:
        self._checks.check_identity()
        connection = connect_reader(self._path)
        connection.set_progress_handler(limit, _STEPS)
        return connection

    def close(self) -> None:
        with self._order:
            self._closed = True
            self._stopped.set()
            for _ in self._threads:
                self._asked.put(None)
        for thread in self._threads:
            thread.join()


def _lower_priority() -> None:
    """Let other threads of this process go first, where the system can do that for one thread (Linux)."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class _StatementLimit:
    """Stops a statement whose caller is gone, or that takes too long. SQLite calls it every few milliseconds."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] | None = None
        self._until = 0.0

    def begin(self, read: _Read) -> None:
        self.answer = read.answer
        self._until = time.monotonic() + _LONGEST_S if read.has_limit else float("inf")

    def __call__(self) -> bool:
        return self.answer is not None and (self.answer.cancelled() or time.monotonic() > self._until)


def _settle(answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if answer.done():
        return  # the caller was cancelled
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


class MemoryReaders:
    """Reads of an in-memory database: it has one connection, so the writer thread reads too."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def call(self, function: Callable[[apsw.Connection], ReadResult], *, has_limit: bool = True) -> ReadResult:
        answer: Any = await self._writer.call(function)
        result: ReadResult = answer
        return result

    scan = call  # in portions, between which the writer continues

    def close(self) -> None: ...


Readers = FileReaders | MemoryReaders
