"""Reads on separate connections and threads, so that they never wait for a write and never block an event loop."""

import asyncio
import os
import queue
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
_THREADS = 2


class _Read(NamedTuple):
    function: Callable[[apsw.Connection], Any]
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Any]"


class FileReaders:
    """Short read transactions on a few threads, which are started on demand.

    A `concurrent.futures` pool would do the same, but doubles the cost of reading one record.
    """

    def __init__(self, path: Path, checks: WriteChecks) -> None:
        self._path = path
        self._checks = checks
        self._checked_at = time.monotonic()  # it was just opened
        self._pid = os.getpid()
        self._asked: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()  # None stops a thread
        self._order = threading.Lock()
        self._unanswered = 0
        self._closed = False
        self._threads: list[threading.Thread] = []

    async def call(self, function: Callable[[apsw.Connection], ReadResult]) -> ReadResult:
        check_process(self._pid)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ReadResult] = loop.create_future()
        self._ask(_Read(function, loop, answer))
        return await answer

    def _ask(self, read: _Read) -> None:
        with self._order:  # no read can be queued after the stop marker
            if self._closed:
                raise StoreUnavailable("the store was closed; open a new one")
            if len(self._threads) < min(self._unanswered + 1, _THREADS):
                self._start_thread()
            self._unanswered += 1
            self._asked.put(read)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"ade-reader-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system is out of threads
            if not self._threads:
                raise StoreUnavailable(f"{self._path} cannot be read: {error}") from error
            return  # the existing threads serve all reads
        self._threads.append(thread)

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while (read := self._asked.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                if not read.answer.cancelled():
                    connection = connection or self._connect()
                    self._check_file()
                    with connection:  # one snapshot for all statements of the read
                        result = read.function(connection)
            except apsw.Error as trouble:
                error = translated(trouble, str(self._path))
                error.__cause__ = trouble
            except BaseException as trouble:
                error = trouble
            with self._order:
                self._unanswered -= 1
            with suppress(RuntimeError):  # its event loop is closed, so no caller waits
                read.loop.call_soon_threadsafe(_settle, read.answer, result, error)
            del read, result, error  # otherwise they stay in memory until the next read
        if connection is not None:
            connection.close()

    def _check_file(self) -> None:
        """Raise StoreReplaced if the file is not the one that was opened. Reads are frequent, so only now and then."""
        now = time.monotonic()
        if now - self._checked_at > CHECK_EVERY_S:
            self._checks.check_identity()  # after an error, the next read checks again
            self._checked_at = now

    def _connect(self) -> apsw.Connection:
        self._checks.check_identity()
        return connect_reader(self._path)

    def close(self) -> None:
        """Finish the queued reads, then stop the threads."""
        with self._order:
            self._closed = True
            for _ in self._threads:
                self._asked.put(None)
        for thread in self._threads:
            thread.join()


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

    async def call(self, function: Callable[[apsw.Connection], ReadResult]) -> ReadResult:
        answer: Any = await self._writer.call(function)
        result: ReadResult = answer
        return result

    def close(self) -> None: ...


Readers = FileReaders | MemoryReaders
