"""Carry operations out in one transaction, and do what each kind of trouble asks for."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import apsw

from ade.errors import AdeError, PayloadTooLarge, StoreUnavailable
from ade.stores.sqlite.connection import is_full, translated, write_transaction

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
