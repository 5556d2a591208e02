"""Reads have connections and threads of their own, so that they never wait for a write, nor a loop for them."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ade.core.errors import StoreUnavailable
from ade.stores.sqlite.connection import check_process, connect_reader, translated
from ade.stores.sqlite.writer import Writer

Result = TypeVar("Result")
_THREADS = 2


class FileReaders:
    """Short read transactions on a few threads."""

    def __init__(self, path: Path, check_file: Callable[[], None]) -> None:
        self._path = path
        self._check_file = check_file  # raises when the file is not the one that was opened first
        self._pid = os.getpid()
        self._local = threading.local()
        self._open: list[apsw.Connection] = []
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ade-reader")

    async def call(self, function: Callable[[apsw.Connection], Result]) -> Result:
        check_process(self._pid)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, function)
        except RuntimeError as error:
            if "shutdown" in str(error):
                raise StoreUnavailable("the store was closed; open a new one") from None
            raise

    def _read(self, function: Callable[[apsw.Connection], Result]) -> Result:
        connection = getattr(self._local, "connection", None)
        try:
            if connection is None:
                self._check_file()
                connection = self._local.connection = connect_reader(self._path)
                self._open.append(connection)
            with connection:  # one snapshot for all statements of the read
                return function(connection)
        except apsw.Error as error:
            raise translated(error, str(self._path)) from error

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        for connection in self._open:
            connection.close()


class MemoryReaders:
    """A database in memory has one connection; the writer's thread reads too."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def call(self, function: Callable[[apsw.Connection], Result]) -> Result:
        answer: Any = await self._writer.call(function)
        result: Result = answer
        return result

    def close(self) -> None: ...


Readers = FileReaders | MemoryReaders
