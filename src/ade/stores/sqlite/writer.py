"""One thread writes. Whatever was asked for while a transaction ran goes into the next one, together."""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import apsw

from ade.core.errors import AdeError, StoreUnavailable, StoreUnsupported
from ade.stores.sqlite.connection import translated, write_transaction

MAX_GROUP = 512
_CLOSE = object()


class Operation(Protocol):
    """One write. Operations of one class are carried out together by `run_group`."""

    @classmethod
    def run_group(cls, connection: apsw.Connection, group: Sequence[Any]) -> None:
        """Carry the group out inside the open transaction; put answers and refusals in each operation's slot."""


@dataclass(slots=True)
class Slot:
    """Where the answer of an operation goes; delivered only after the commit."""

    deliver: Callable[[Any, BaseException | None], None]
    answer: Any = None
    refusal: BaseException | None = None


@dataclass(slots=True)
class Ask:
    operation: Any
    slot: Slot
    loop: asyncio.AbstractEventLoop | None = None
    future: "asyncio.Future[Any] | Future[Any] | None" = None


@dataclass(slots=True)
class Call:
    """A write that is just a function of the connection: for everything that is not on the hot path."""

    function: Callable[[apsw.Connection], Any]
    slot: Slot = field(default_factory=lambda: Slot(lambda answer, refusal: None))

    @classmethod
    def run_group(cls, connection: apsw.Connection, group: Sequence["Call"]) -> None:
        for call in group:
            try:
                with connection:  # a savepoint: one refused call undoes only itself
                    call.slot.answer = call.function(connection)
            except AdeError as refusal:
                call.slot.refusal = refusal


class Writer:
    """Group commit: BEGIN IMMEDIATE, all operations waiting, COMMIT, then every caller gets its answer."""

    def __init__(self, open_connection: Callable[[], apsw.Connection], what: str, guard: "WriteGuard") -> None:
        self._open = open_connection
        self._what = what
        self._guard = guard
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._closed = False
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="ade-writer", daemon=True)
        self._thread.start()
        self._started.result()

    async def do(self, operation: Any) -> Any:
        """Carry the operation out and return its answer, or raise its refusal."""
        self._check_usable()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._asked.put(Ask(operation, operation.slot, loop, future))
        return await future

    def do_blocking(self, operation: Any) -> Any:
        """The same for callers in a thread of their own."""
        self._check_usable()
        future: Future[Any] = Future()
        self._asked.put(Ask(operation, operation.slot, None, future))
        return future.result()

    async def call(self, function: Callable[[apsw.Connection], Any]) -> Any:
        return await self.do(Call(function))

    def call_blocking(self, function: Callable[[apsw.Connection], Any]) -> Any:
        return self.do_blocking(Call(function))

    def close(self) -> None:
        """Finish what was asked for, then end the thread."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            self._asked.put(_CLOSE)
            self._thread.join()

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store was closed; open a new one")
        if os.getpid() != self._pid:
            raise StoreUnsupported("the store was opened before a fork; open it in the process that uses it")

    def _run(self) -> None:
        try:
            connection = self._open()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        open_for_more = True
        while open_for_more:
            group, open_for_more = self._next_group()
            if group:
                connection = self._carry_out(connection, group)
                _deliver(group)
        connection.close()

    def _next_group(self) -> tuple[list[Ask], bool]:
        """Everything that waits, at least one."""
        group: list[Ask] = []
        asked = self._asked.get()
        while True:
            if asked is _CLOSE:
                return group, False
            group.append(asked)
            if len(group) >= MAX_GROUP or self._asked.empty():
                return group, True
            asked = self._asked.get()

    def _carry_out(self, connection: apsw.Connection, group: list[Ask]) -> apsw.Connection:
        try:
            self._guard.before_write()
            self._transact(connection, group)
        except AdeError as error:
            _refuse(group, error)
        except apsw.Error as error:
            return self._recover(connection, group, error)
        except Exception as error:
            if len(group) == 1:
                _refuse(group, error)
            else:
                self._one_by_one(connection, group)
        return connection

    def _transact(self, connection: apsw.Connection, group: list[Ask]) -> None:
        for ask in group:
            ask.slot.answer = ask.slot.refusal = None
        with write_transaction(connection, self._what):
            by_class: dict[type, list[Any]] = {}
            for ask in group:
                by_class.setdefault(type(ask.operation), []).append(ask.operation)
            for kind, operations in by_class.items():
                kind.run_group(connection, operations)  # type: ignore[attr-defined]  # every class is an Operation
        self._guard.after_write()

    def _recover(self, connection: apsw.Connection, group: list[Ask], error: apsw.Error) -> apsw.Connection:
        """SQLite refused. Make room or reopen as the error asks for, then try each operation on its own."""
        if isinstance(error, apsw.FullError) and self._guard.make_room():
            self._one_by_one(connection, group)
        elif isinstance(
            error, apsw.IOError
        ):  # the outcome is unknown: a fresh connection, and every write is repeatable
            connection.close()
            try:
                connection = self._open()
            except AdeError as failure:
                _refuse(group, failure)
                connection = apsw.Connection(":memory:")
                connection.close()  # every later write fails with ConnectionClosed and tries to reopen
                return connection
            self._guard.note_io_error()
            self._one_by_one(connection, group)
        elif isinstance(error, apsw.ConnectionClosedError):
            return self._reopened(group)
        elif len(group) > 1:
            self._one_by_one(connection, group)  # one bad row must not stop the others
        else:
            _refuse(group, translated(error, self._what))
        return connection

    def _reopened(self, group: list[Ask]) -> apsw.Connection:
        try:
            connection = self._open()
        except AdeError as failure:
            _refuse(group, failure)
            closed = apsw.Connection(":memory:")
            closed.close()
            return closed
        self._one_by_one(connection, group)
        return connection

    def _one_by_one(self, connection: apsw.Connection, group: list[Ask]) -> None:
        for ask in group:
            try:
                self._transact(connection, [ask])
            except AdeError as error:
                ask.slot.refusal = error
            except apsw.Error as error:
                ask.slot.refusal = translated(error, self._what)
            except Exception as error:
                ask.slot.refusal = error


class WriteGuard(Protocol):
    """Looks after the file around writes."""

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


class NoGuard:
    """For a database in memory."""

    def before_admission(self) -> None: ...

    def before_write(self) -> None: ...

    def after_write(self) -> None: ...

    def make_room(self) -> bool:
        return False

    def note_io_error(self) -> None: ...


def _refuse(group: list[Ask], error: BaseException) -> None:
    for ask in group:
        ask.slot.refusal = error


def _deliver(group: list[Ask]) -> None:
    """Wake every event loop once, whatever the number of its callers."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ask]] = {}
    for ask in group:
        if ask.loop is None:
            _settle(ask)
        else:
            by_loop.setdefault(ask.loop, []).append(ask)
    for loop, asks in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_all, asks)
        except RuntimeError:  # the loop was closed: nobody waits any more
            continue


def _settle_all(asks: list[Ask]) -> None:
    for ask in asks:
        _settle(ask)


def _settle(ask: Ask) -> None:
    future = ask.future
    if future is None or future.done():
        return
    if ask.slot.refusal is not None:
        future.set_exception(ask.slot.refusal)
    else:
        future.set_result(ask.slot.answer)
