"""One thread writes. Whatever was asked for while a transaction ran goes into the next one, together."""

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import apsw

from ade.errors import StoreUnavailable
from ade.stores.sqlite.connection import check_process
from ade.stores.sqlite.transactions import FunctionOperation, Transactions, WriteOperation

MAX_GROUP = 512
MAX_WEIGHT = 10_000  # records in one transaction, about: others wait for its end


@dataclass(slots=True)
class _PendingWrite:
    """Somebody waits for an operation: on an event loop, or blocking in a thread."""

    operation: WriteOperation
    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[Any] | Future[Any]


class Writer:
    """Group commit: all operations that wait go into one transaction, then every caller gets its answer."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._asked: queue.SimpleQueue[_PendingWrite | None] = queue.SimpleQueue()  # None asks for the end
        self._pid = os.getpid()
        self._closed = False
        self._order = threading.Lock()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="ade-writer", daemon=True)
        self._thread.start()
        self._started.result()

    async def do(self, operation: WriteOperation) -> Any:
        """Carry the operation out and return its answer, or raise its refusal."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._ask(_PendingWrite(operation, loop, future))
        return await future

    def do_blocking(self, operation: WriteOperation) -> Any:
        """The same for callers in a thread of their own."""
        future: Future[Any] = Future()
        self._ask(_PendingWrite(operation, None, future))
        return future.result()

    async def call(
        self, function: Callable[[apsw.Connection], Any], afterwards: Callable[[], None] | None = None
    ) -> Any:
        return await self.do(FunctionOperation(function, afterwards))

    def call_blocking(self, function: Callable[[apsw.Connection], Any]) -> Any:
        return self.do_blocking(FunctionOperation(function))

    def close(self) -> None:
        """Finish what was asked for, then end the thread."""
        check_process(self._pid)
        with self._order:
            if not self._closed:
                self._closed = True
                self._asked.put(None)
        self._thread.join()

    def _ask(self, ask: _PendingWrite) -> None:
        check_process(self._pid)
        with self._order:  # nothing is asked for behind the end
            if self._closed:
                raise StoreUnavailable("the store was closed; open a new one")
            self._asked.put(ask)

    def _run(self) -> None:
        try:
            self._transactions.open()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        goes_on = True
        while goes_on:
            group, goes_on = self._next_group()
            if group:
                self._transactions.carry_out([ask.operation for ask in group])
                _follow_up(group)
                _answer(group)
        self._transactions.close()

    def _next_group(self) -> tuple[list[_PendingWrite], bool]:
        """Everything that waits, at least one; False when the end was asked for."""
        group: list[_PendingWrite] = []
        weight = 0
        asked = self._asked.get()
        while asked is not None:
            group.append(asked)
            weight += asked.operation.weight
            if len(group) >= MAX_GROUP or weight >= MAX_WEIGHT or self._asked.empty():
                return group, True
            asked = self._asked.get()
        return group, False


def _follow_up(group: list[_PendingWrite]) -> None:
    """Once for each thing to do, and before the callers are answered: that alone takes a change of threads."""
    done = {ask.operation.afterwards for ask in group if ask.operation.refusal is None}
    for afterwards in done:
        if afterwards is not None:
            afterwards()


def _answer(group: list[_PendingWrite]) -> None:
    """Wake every event loop once, whatever the number of its callers."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_PendingWrite]] = {}
    for ask in group:
        if ask.loop is None:
            _settle([ask])
        else:
            by_loop.setdefault(ask.loop, []).append(ask)
    for loop, asks in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, asks)
        except RuntimeError:  # the loop was closed: nobody waits any more
            continue


def _settle(asks: list[_PendingWrite]) -> None:
    for ask in asks:
        if ask.future.done():
            continue
        if ask.operation.refusal is not None:
            ask.future.set_exception(ask.operation.refusal)
        else:
            ask.future.set_result(ask.operation.answer)


# Writes of the thread that renews leases: on a connection of their own, so that they wait for nobody else's work.


Answer = TypeVar("Answer")


class LeaseWriter:
    """Blocking. A database in memory has but one connection, and then the writer does it."""

    def __init__(self, writer: "Writer", transactions: Transactions | None) -> None:
        self._writer = writer
        self._transactions = transactions
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False

    def call(self, write: Callable[[apsw.Connection], Answer]) -> Answer:
        if self._transactions is None:
            written: Answer = self._writer.call_blocking(write)
            return written
        check_process(self._pid)
        operation = FunctionOperation(write)
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store was closed; open a new one")
            self._transactions.carry_out([operation])
        if operation.refusal is not None:
            raise operation.refusal
        answer: Answer = operation.answer
        return answer

    def close(self) -> None:
        if self._transactions is not None:
            with self._lock:
                self._closed = True
                self._transactions.close()
