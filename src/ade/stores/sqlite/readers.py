"""Reads have connections and threads of their own, so that they never wait for a write, nor a loop for them."""

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from ade.errors import StoreUnavailable
from ade.stores.sqlite.connection import check_process, connect_reader, translated
from ade.stores.sqlite.writer import Writer

ReadResult = TypeVar("ReadResult")
_THREADS = 2


class _Read(NamedTuple):
    function: Callable[[apsw.Connection], Any]
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Any]"


class FileReaders:
    """Short read transactions on a few threads, which are started as they are needed.

    A pool of `concurrent.futures` would do the same, at twice the price of the read of one record.
    """

    def __init__(self, path: Path, check_file: Callable[[], None]) -> None:
        self._path = path
        self._check_file = check_file  # raises when the file is not the one that was opened first
        self._pid = os.getpid()
        self._asked: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()  # None asks for the end of a thread
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
        with self._order:  # nothing is asked for behind the end
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
        except RuntimeError as error:  # the system has no more of them
            if not self._threads:
                raise StoreUnavailable(f"{self._path} cannot be read: {error}") from error
            return  # others read in turn
        self._threads.append(thread)

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while (read := self._asked.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                if not read.answer.cancelled():
                    connection = connection or self._connect()
                    with connection:  # one snapshot for all statements of the read
                        result = read.function(connection)
            except apsw.Error as trouble:
                error = translated(trouble, str(self._path))
                error.__cause__ = trouble
            except BaseException as trouble:
                error = trouble
            with self._order:
                self._unanswered -= 1
            with suppress(RuntimeError):  # its loop was closed, so nobody waits for it
                read.loop.call_soon_threadsafe(_settle, read.answer, result, error)
            del read, result, error  # or they would live until the next read
        if connection is not None:
            connection.close()

    def _connect(self) -> apsw.Connection:
        self._check_file()
        return connect_reader(self._path)

    def close(self) -> None:
        """What was asked for is answered first."""
        with self._order:
            self._closed = True
            for _ in self._threads:
                self._asked.put(None)
        for thread in self._threads:
            thread.join()


def _settle(answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if answer.done():
        return  # nobody waits for it any more
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


class MemoryReaders:
    """A database in memory has one connection; the writer's thread reads too."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def call(self, function: Callable[[apsw.Connection], ReadResult]) -> ReadResult:
        answer: Any = await self._writer.call(function)
        result: ReadResult = answer
        return result

    def close(self) -> None: ...


Readers = FileReaders | MemoryReaders
