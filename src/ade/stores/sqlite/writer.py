"""The writer: group commit of operations on one thread, error recovery, and a separate writer for leases."""

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import apsw

from ade.errors import AdeError, DiskFull, PayloadTooLarge, StoreUnavailable
from ade.logs import Log
from ade.stores.sqlite.connection import check_process, is_full, translated, write_transaction
from ade.stores.sqlite.file_identity import CHECK_EVERY_S, FileIdentity
from ade.stores.sqlite.files import DatabaseFiles, drop_ballast, ensure_ballast, free_percent
from ade.stores.sqlite.schema import check_version, schema_version

_WRITE_ERRORS = (
    apsw.SQLITE_IOERR_WRITE,
    apsw.SQLITE_IOERR_FSYNC,
    apsw.SQLITE_IOERR_DIR_FSYNC,
    apsw.SQLITE_IOERR_TRUNCATE,
)


class WriteOperation:
    """One write. Operations of one class run together; each keeps its own answer or error (`refusal`).

    Every operation is idempotent: it can run again after an error whose outcome is unknown.
    The writer thread calls `afterwards` as soon as the write is durable.
    """

    __slots__ = ("afterwards", "answer", "refusal")
    may_use_reserve: ClassVar[bool] = True  # whether it can use the reserved space of a full disk

    def __init__(self, afterwards: Callable[[], None] | None = None) -> None:
        self.answer: Any = None
        self.refusal: BaseException | None = None
        self.afterwards = afterwards

    @property
    def weight(self) -> int:
        """The approximate number of records that it writes."""
        return 1

    @classmethod
    def run_group(cls, connection: apsw.Connection, group: Sequence[Any]) -> None:
        """Run the operations inside the open transaction."""
        for operation in group:
            operation.run(connection)


class FunctionOperation(WriteOperation):
    """A write that is a plain function of the connection, for everything outside the hot path."""

    __slots__ = ("_function",)

    def __init__(
        self, function: Callable[[apsw.Connection], Any], afterwards: Callable[[], None] | None = None
    ) -> None:
        super().__init__(afterwards)
        self._function = function

    def run(self, connection: apsw.Connection) -> None:
        try:
            with connection:  # a savepoint: a rejected call rolls back only itself
                self.answer = self._function(connection)
        except AdeError as refusal:
            self.refusal = refusal


class WriteChecks:
    """Checks of the database file around writes. An in-memory database has none."""

    check_every_s: ClassVar[float | None] = None  # how often an idle writer calls `look`

    def settle(self) -> None:
        """Called once the store is open."""

    def note_opened(self, connection: apsw.Connection) -> None:
        """Record the files of a new connection. Raises StoreReplaced."""

    def note_closed(self) -> None:
        """Called when a connection was closed."""

    def look(self, connection: apsw.Connection) -> None:
        """Check the contents of the files now and then."""

    def check_identity(self) -> None:
        """Raise StoreReplaced if a file is not the one that was opened: writes would be lost, or two stores mixed."""

    def ensure_ballast(self) -> bool:
        """Create the reserve file if it is missing. Returns False if there is no space for it."""
        return False

    def before_admission(self) -> None:
        """Raise if no new tasks can be accepted."""

    def before_write(self) -> None:
        """Raise if the file must not be written."""

    def after_write(self) -> None:
        """Called after each commit."""

    def make_room(self) -> bool:
        """Release the reserved space of a full disk. Returns False if there is none left."""
        return False

    def note_io_error(self) -> None:
        """Count an input/output error."""


_log = Log("ade.store")
_LOOK_EVERY_S = 1.0
_IO_ERRORS_TOLERATED = 3
_READ_ONLY_FOR_S = 10.0


class FileWriteChecks(WriteChecks):
    """Checks around writes, shared by all threads without a lock: the files were not replaced, the disk has space, and
    it reports no errors.
    """

    check_every_s = CHECK_EVERY_S

    def __init__(
        self, place: DatabaseFiles, identity: FileIdentity, *, min_free_percent: float, ballast_mb: int
    ) -> None:
        self._place = place
        self._identity = identity
        self._database: tuple[int, int] | None = None
        self._looked_at = 0.0
        self._logged: str | None = None
        self._min_free = min_free_percent
        self._ballast_mb = ballast_mb
        self._had_ballast = False
        self._room_looked_at = 0.0
        self._full: str | None = None
        self._io_errors = 0
        self._refuse_until = 0.0

    def settle(self) -> None:
        self.check_identity()
        self.ensure_ballast()

    def before_admission(self) -> None:
        # While the disk is nearly full, the remaining space is for running tasks.
        now = time.monotonic()
        if now - self._room_looked_at > _LOOK_EVERY_S:
            self._room_looked_at = now
            self._full = self._why_full()
        if self._full is not None:
            raise DiskFull(f"{self._full}, so no new task is accepted; running tasks can finish. Free some space")

    def _why_full(self) -> str | None:
        free = free_percent(self._place.path.parent)
        if free < self._min_free:
            return f"only {free:.1f} % of the disk is free (store.min_free_percent is {self._min_free})"
        if self._had_ballast and not self.ensure_ballast():
            return "the disk was full and there is not yet room again for the ballast (store.ballast_mb)"
        return None

    def ensure_ballast(self) -> bool:
        there = ensure_ballast(self._place, self._ballast_mb)
        self._had_ballast = self._had_ballast or there
        return there

    def before_write(self) -> None:
        if time.monotonic() < self._refuse_until:
            raise StoreUnavailable(
                f"{self._place.path} met {self._io_errors} input/output errors in a row; not written for a while"
            )
        with suppress(OSError):
            status = os.stat(self._place.path)  # noqa: PTH116  # before every commit, and faster than a Path
            if (status.st_dev, status.st_ino) == self._database and self._identity.trouble is None:
                return
        self._identity.check()

    def check_identity(self) -> None:
        self._identity.check()

    def note_opened(self, connection: apsw.Connection) -> None:
        self._identity.note_opened(connection)
        self._database = self._identity.database

    def note_closed(self) -> None:
        self._identity.note_closed()

    def look(self, connection: apsw.Connection) -> None:
        now = time.monotonic()
        if now - self._looked_at < CHECK_EVERY_S or connection.in_transaction:
            return
        self._looked_at = now
        self._identity.look(connection)
        trouble = self._identity.trouble
        if trouble is not None and trouble.detail != self._logged:
            _log.error(trouble.code, error=str(trouble))
        self._logged = None if trouble is None else trouble.detail

    def after_write(self) -> None:
        self._io_errors = 0

    def make_room(self) -> bool:
        self._room_looked_at = 0.0
        return drop_ballast(self._place)

    def note_io_error(self) -> None:
        self._io_errors += 1
        if self._io_errors >= _IO_ERRORS_TOLERATED:
            self._refuse_until = time.monotonic() + _READ_ONLY_FOR_S


class Transactions:
    """Write transactions on one connection, used by one thread only."""

    def __init__(self, connect: Callable[[], apsw.Connection], what: str, guard: WriteChecks) -> None:
        self._connect = connect
        self._what = what
        self._guard = guard
        self._connection: apsw.Connection | None = None
        self._data_version = -1  # after the last commit of this connection
        self.check_every_s = guard.check_every_s

    def open(self) -> None:
        connection = self._connect()
        try:
            self._guard.note_opened(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._guard.note_closed()
            connection.close()

    def look(self) -> None:
        if self._connection is not None:
            try:
                self._guard.look(self._connection)
            except Exception:  # without its thread, every write would wait indefinitely
                _log.exception("store.check_failed", store=self._what)

    def carry_out(self, group: list[WriteOperation]) -> None:
        """Run the operations in one transaction; sets the answer or error of each. Never raises."""
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
        """Reject operations that add work: the remaining disk space is for running tasks."""
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
            if self._connection.data_version() != self._data_version:  # another process has written
                check_version(schema_version(self._connection), self._connection.filename)
            for kind, operations in by_class.items():
                kind.run_group(self._connection, operations)
        self._data_version = self._connection.data_version()
        self._guard.after_write()

    def _mend(self, error: Exception) -> bool:
        """Return whether a retry makes sense: space was released, or the error was an I/O error."""
        if is_full(error):
            return self._guard.make_room()
        return isinstance(error, apsw.IOError)

    def _after_io_error(self, error: apsw.IOError) -> None:
        """Count the error, and close a connection that is no longer usable.

        A failed write or sync is retried on the same connection, which writes the pages again. A new connection would
        find the failed transaction in the page cache, consider it written, and have nothing left to sync.
        """
        self._guard.note_io_error()
        stuck = self._connection is not None and self._connection.in_transaction
        if stuck or getattr(error, "extendedresult", 0) not in _WRITE_ERRORS:
            try:
                self.close()
            except apsw.Error:
                self._connection = None

    def _one_by_one(self, group: list[WriteOperation]) -> None:
        """Run each operation in its own transaction, so that one bad operation does not stop the others."""
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
        if isinstance(error, apsw.SQLError) and "malformed JSON" in str(error):  # only nesting can cause it
            return PayloadTooLarge("arguments or result are nested too deeply for the store (about 990 levels fit)")
        return translated(error, self._what) if isinstance(error, apsw.Error) else error


def _refuse(group: list[WriteOperation], error: BaseException) -> None:
    for operation in group:
        operation.refusal = error


MAX_GROUP = 512
MAX_WEIGHT = 10_000  # approximate records per transaction: other writers wait until it commits


@dataclass(slots=True)
class _PendingWrite:
    """A queued operation and the future of its caller, on an event loop or in a thread."""

    operation: WriteOperation
    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[Any] | Future[Any]


class Writer:
    """Group commit: one thread writes all queued operations in one transaction, then answers every caller."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._asked: queue.SimpleQueue[_PendingWrite | None] = queue.SimpleQueue()  # None stops the thread
        self._pid = os.getpid()
        self._closed = False
        self._order = threading.Lock()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="ade-writer", daemon=True)
        self._thread.start()
        self._started.result()

    async def do(self, operation: WriteOperation) -> Any:
        """Run the operation and return its answer, or raise its error."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._ask(_PendingWrite(operation, loop, future))
        return await future

    def do_blocking(self, operation: WriteOperation) -> Any:
        """The same as `do`, for callers in a thread without an event loop."""
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
        """Finish the queued operations, then stop the thread."""
        check_process(self._pid)
        with self._order:
            if not self._closed:
                self._closed = True
                self._asked.put(None)
        self._thread.join()

    def _ask(self, ask: _PendingWrite) -> None:
        check_process(self._pid)
        with self._order:  # no operation can be queued after the stop marker
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
            self._transactions.look()
            group, goes_on = self._next_group()
            if group:
                self._transactions.carry_out([ask.operation for ask in group])
                _follow_up(group)
                _answer(group)
        self._transactions.close()

    def _next_group(self) -> tuple[list[_PendingWrite], bool]:
        """Return the queued operations, waiting some time for the first one, and False once the thread must stop."""
        group: list[_PendingWrite] = []
        weight = 0
        try:
            asked = self._asked.get(timeout=self._transactions.check_every_s)
        except queue.Empty:
            return group, True
        while asked is not None:
            group.append(asked)
            weight += asked.operation.weight
            if len(group) >= MAX_GROUP or weight >= MAX_WEIGHT or self._asked.empty():
                return group, True
            asked = self._asked.get()
        return group, False


def _follow_up(group: list[_PendingWrite]) -> None:
    """Call each distinct `afterwards` once, before the callers are answered, because that takes a thread switch."""
    done = {ask.operation.afterwards for ask in group if ask.operation.refusal is None}
    for afterwards in done:
        if afterwards is not None:
            afterwards()


def _answer(group: list[_PendingWrite]) -> None:
    """Answer all callers, waking every event loop only once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_PendingWrite]] = {}
    for ask in group:
        if ask.loop is None:
            _settle([ask])
        else:
            by_loop.setdefault(ask.loop, []).append(ask)
    for loop, asks in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, asks)
        except RuntimeError:  # the loop is closed, so no caller waits
            continue


def _settle(asks: list[_PendingWrite]) -> None:
    for ask in asks:
        if ask.future.done():
            continue
        if ask.operation.refusal is not None:
            ask.future.set_exception(ask.operation.refusal)
        else:
            ask.future.set_result(ask.operation.answer)


Answer = TypeVar("Answer")


class LeaseWriter:
    """Blocking writes of the lease renewal thread, on a separate connection so that they do not wait for other writes.

    An in-memory database has only one connection, so there the writer runs them.
    """

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
