"""Carry operations out in one transaction, and do what each kind of trouble asks for."""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import apsw

from ade.errors import AdeError, PayloadTooLarge, StoreUnavailable
from ade.stores.sqlite.connection import check_process, is_full, translated, write_transaction

_WRITE_ERRORS = (
    apsw.SQLITE_IOERR_WRITE,
    apsw.SQLITE_IOERR_FSYNC,
    apsw.SQLITE_IOERR_DIR_FSYNC,
    apsw.SQLITE_IOERR_TRUNCATE,
)


class WriteOperation:
    """One write. Operations of one class are carried out together; each keeps its own answer or refusal.

    Every operation may be carried out twice (after an error whose outcome is unknown) with the effect of once.
    `afterwards` is called by the writing thread as soon as the write is durable.
    """

    __slots__ = ("afterwards", "answer", "refusal")
    may_use_reserve: ClassVar[bool] = True  # whether it may be written into the last space of a full disk

    def __init__(self, afterwards: Callable[[], None] | None = None) -> None:
        self.answer: Any = None
        self.refusal: BaseException | None = None
        self.afterwards = afterwards

    @property
    def weight(self) -> int:
        """How many records it writes, about."""
        return 1

    @classmethod
    def run_group(cls, connection: apsw.Connection, group: Sequence[Any]) -> None:
        """Carry the group out inside the open transaction."""
        for operation in group:
            operation.run(connection)


class FunctionOperation(WriteOperation):
    """A write that is just a function of the connection: for everything that is not on the hot path."""

    __slots__ = ("_function",)

    def __init__(
        self, function: Callable[[apsw.Connection], Any], afterwards: Callable[[], None] | None = None
    ) -> None:
        super().__init__(afterwards)
        self._function = function

    def run(self, connection: apsw.Connection) -> None:
        try:
            with connection:  # a savepoint: a refused call undoes only itself
                self.answer = self._function(connection)
        except AdeError as refusal:
            self.refusal = refusal


class WriteChecks(Protocol):
    """Looks after the file around writes."""

    def settle(self) -> None:
        """The store was opened."""

    def check_identity(self) -> None:
        """Raise when the file is not the one that was opened."""

    def ensure_ballast(self) -> bool:
        """Have a reserve that can be given up; False when there is no room for one."""

    def before_admission(self) -> None:
        """Raise when no new work should be taken in."""

    def before_write(self) -> None:
        """Raise when the file must not be written."""

    def after_write(self) -> None:
        """A transaction was committed."""

    def make_room(self) -> bool:
        """The disk is full: give something up. False when there is nothing left to give."""

    def note_io_error(self) -> None:
        """An input or output error was met."""


class NoWriteChecks:
    """For a database in memory."""

    def settle(self) -> None: ...

    def check_identity(self) -> None: ...

    def ensure_ballast(self) -> bool:
        return False

    def before_admission(self) -> None: ...

    def before_write(self) -> None: ...

    def after_write(self) -> None: ...

    def make_room(self) -> bool:
        return False

    def note_io_error(self) -> None: ...


class Transactions:
    """Owns the writing connection. Used by one thread only."""

    def __init__(self, connect: Callable[[], apsw.Connection], what: str, guard: WriteChecks) -> None:
        self._connect = connect
        self._what = what
        self._guard = guard
        self._connection: apsw.Connection | None = None

    def open(self) -> None:
        self._connection = self._connect()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def carry_out(self, group: list[WriteOperation]) -> None:
        """Every operation has its answer or its refusal afterwards. Never raises."""
        try:
            self._guard.before_write()
            self._transact(group)
        except AdeError as error:
            _refuse(group, error)
        except Exception as error:
            if is_full(error):
                group = self._without_new_work(group, error)
            elif isinstance(error, apsw.IOError):
                self._after_io_error(error)
            if group and (self._mend(error) or len(group) > 1):
                self._one_by_one(group)
            else:
                _refuse(group, self._as_ours(error))

    def _without_new_work(self, group: list[WriteOperation], error: Exception) -> list[WriteOperation]:
        """What is left of the disk is for work that is under way."""
        _refuse([operation for operation in group if not operation.may_use_reserve], self._as_ours(error))
        return [operation for operation in group if operation.may_use_reserve]

    def _transact(self, group: list[WriteOperation]) -> None:
        if self._connection is None:
            self.open()
        assert self._connection is not None
        by_class: dict[type[WriteOperation], list[WriteOperation]] = {}
        for operation in group:
            operation.answer = operation.refusal = None
            by_class.setdefault(type(operation), []).append(operation)
        with write_transaction(self._connection, self._what):
            for kind, operations in by_class.items():
                kind.run_group(self._connection, operations)
        self._guard.after_write()

    def _mend(self, error: Exception) -> bool:
        """Whether something was done about the trouble, so that another try makes sense."""
        if is_full(error):
            return self._guard.make_room()
        return isinstance(error, apsw.IOError)

    def _after_io_error(self, error: apsw.IOError) -> None:
        """Count it, and leave a connection that cannot be used any more.

        A write or sync that failed is tried again on the same connection, which writes the pages anew. A fresh one
        would find the failed transaction in the system's cache, take it for written and have nothing left to sync.
        """
        self._guard.note_io_error()
        stuck = self._connection is not None and self._connection.in_transaction
        if stuck or getattr(error, "extendedresult", 0) not in _WRITE_ERRORS:
            try:
                self.close()
            except apsw.Error:
                self._connection = None

    def _one_by_one(self, group: list[WriteOperation]) -> None:
        """One bad operation must not stop the others."""
        for operation in group:
            try:
                self._guard.before_write()
                self._transact([operation])
            except Exception as error:
                if isinstance(error, apsw.IOError) and not is_full(error):
                    self._after_io_error(error)
                operation.refusal = self._as_ours(error)

    def _as_ours(self, error: Exception) -> Exception:
        if isinstance(error, apsw.IOError) and not is_full(error):
            return StoreUnavailable(f"{self._what}: the disk answered with an error ({error}); the outcome is unknown")
        if isinstance(error, apsw.SQLError) and "malformed JSON" in str(error):  # ours is well-formed, so it is this
            return PayloadTooLarge("arguments or result are nested too deeply for the store (about 990 levels fit)")
        return translated(error, self._what) if isinstance(error, apsw.Error) else error


def _refuse(group: list[WriteOperation], error: BaseException) -> None:
    for operation in group:
        operation.refusal = error


# One thread writes. Whatever was asked for while a transaction ran goes into the next one, together.


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
