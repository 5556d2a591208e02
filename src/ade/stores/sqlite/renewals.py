"""Writes of the thread that renews leases: on a connection of their own, so that they wait for nobody else's work."""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import apsw

from ade.core.errors import StoreUnavailable
from ade.stores.sqlite.connection import check_process
from ade.stores.sqlite.transactions import Call, Transactions

if TYPE_CHECKING:
    from ade.stores.sqlite.writer import Writer

Answer = TypeVar("Answer")


class Renewals:
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
        operation = Call(write)
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
