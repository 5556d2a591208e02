"""The audit copy on PostgreSQL: one table, made append-only by triggers, with one writer at a time.

Importing this module raises DriverMissing without psycopg, which is an optional dependency.
"""

import asyncio
import os
import re
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from ade.errors import (
    DiskFull,
    DriverMissing,
    InvalidUrl,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreReadOnly,
    StoreUnavailable,
)
from ade.events.audit_chain import AuditEntry, AuditHead, chain
from ade.events.model import Event
from ade.stores.sql_files import SqlFile

try:
    import psycopg
    from psycopg import ProgrammingError, errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise DriverMissing(
        f"the audit copy in PostgreSQL needs psycopg ({error}); install it with `pip install 'community-ade[postgres]'`"
    ) from None

Connection = psycopg.Connection
DriverError = psycopg.Error
_CONNECT_S = 10
_PORTS = re.compile(r"[\d,]*")
_BAD_URL = (
    "the PostgreSQL URL cannot be read: use postgresql://user:password@host:port/database, and write characters such as"
    " @ / : % in a password as %40 %2F %3A %25"
)
# Detects a dead connection even while nothing is sent.
_KEEP_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Connection parameters of a database. `str` and `repr` omit the password."""

    parts: dict[str, Any]

    def __str__(self) -> str:
        host, port = self.parts.get("host"), self.parts.get("port")
        place = ", ".join(filter(None, [str(host or "the default host"), f"port {port}" if port else ""]))
        return f"PostgreSQL database {self.parts.get('dbname') or 'by default'!r} on {place}"

    __repr__ = __str__


def address_of(url: str) -> PostgresAddress:
    """Parse a URL. Raises InvalidUrl without quoting the URL, because any part of it might contain a password."""
    try:
        parts = conninfo_to_dict(url)
    except (ProgrammingError, UnicodeError, ValueError):
        raise InvalidUrl(_BAD_URL) from None
    misread = "@" in f"{parts.get('host', '')}{parts.get('dbname', '')}"
    if misread or not _PORTS.fullmatch(str(parts.get("port") or "")):
        raise InvalidUrl(_BAD_URL)
    return PostgresAddress({"application_name": "ade-audit", "connect_timeout": _CONNECT_S, **_KEEP_ALIVE, **parts})


def connect(address: PostgresAddress) -> Connection[Any]:
    """Open a connection in autocommit mode, whose `transaction()` blocks are READ COMMITTED."""
    connection = psycopg.connect(
        **address.parts,
        autocommit=True,
        prepare_threshold=None,  # a connection pooler might assign another session to each transaction
    )
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def translated(error: DriverError | OSError, address: PostgresAddress) -> StoreError:
    """Return the ADE error for a psycopg or operating system error, without the password."""
    reason = _reason(error, address)
    match error:
        case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
            return StoreReadOnly(
                f"{address} cannot be written ({reason}). Check the role's privileges, and that it is not a replica"
            )
        case errors.DiskFull():
            return DiskFull(
                f"the disk of {address} is full. Free some space; nothing of the event log is lost meanwhile"
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return StoreCorrupt(f"{address} is damaged ({reason}). Restore the newest backup; do not write to it")
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.WrongObjectType() | errors.DatatypeMismatch():
            return StoreForeign(f"the table ade_audit in {address} is not ADE's ({reason}); nothing was changed")
        case _:
            return StoreUnavailable(f"{address} could not be used ({reason}). Nothing is lost: it is tried again")


def _reason(error: DriverError | OSError, address: PostgresAddress) -> str:
    """Return the message of the server or the network in one line, with the password masked."""
    said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error) or type(error).__name__
    line = " ".join(str(said).split())
    password = address.parts.get("password")
    return line.replace(str(password), "***") if password else line


_ANSWER_S = 60.0  # counting a very long chain is slow
_CLOSE_S = 2.0
Result = TypeVar("Result")


def open_audit(url: str) -> "PostgresAudit":
    """Open the audit copy at a postgresql:// URL. It connects on first use, so an unreachable server blocks no work.

    Raises InvalidUrl immediately.
    """
    return PostgresAudit(address_of(url))


class PostgresAudit:
    """An audit copy with one thread and one connection, which reconnects after a loss. Other processes can append too.

    The end of the chain is the cursor: an append acquires a lock, reads the end, and commits the new entries
    atomically. Reads do not create the table, so that a removed table is noticed.
    """

    def __init__(self, address: PostgresAddress, *, answer_within_s: float = _ANSWER_S) -> None:
        self._address = address
        self._answer_within_s = answer_within_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ade-audit")
        self._connection: Connection[Any] | None = None

    async def head(self) -> AuditHead:
        return await self._call(lambda connection: _head(connection) if _exists(connection) else AuditHead())

    async def base(self) -> AuditHead:
        return AuditHead()  # entries are never removed: the account of ADE must not be able to

    async def rotate(self, max_bytes: int, folder: Path | None) -> int:
        return 0  # the database decides what becomes of its table

    async def append(self, events: Sequence[Event]) -> AuditHead:
        def write(connection: Connection[Any]) -> AuditHead:
            _rows(connection, "lock")
            if not _exists(connection):
                connection.execute(_sql("create"))
            head = _head(connection)
            entries = chain(head, [event for event in events if event.seq > head.seq])
            if not entries:
                return head
            with connection.cursor() as cursor:
                cursor.executemany(_sql("append"), [structs.asdict(entry) for entry in entries])
            return AuditHead(entries[-1].seq, entries[-1].hash)

        return await self._call(write)

    async def entries(self, after: int, limit: int) -> list[AuditEntry]:
        return await self._call(lambda connection: _entries(connection, "read", after=after, limit=limit))

    async def last_entries(self, limit: int) -> list[AuditEntry]:
        return await self._call(lambda connection: _entries(connection, "list_newest", limit=limit)[::-1])

    async def count(self) -> int:
        return await self._call(lambda connection: int(_rows(connection, "count")[0][0]) if _exists(connection) else 0)

    async def close(self) -> None:
        dropping = asyncio.wrap_future(self._thread.submit(self._drop))
        self._thread.shutdown(wait=False)
        done, _ = await asyncio.wait([dropping], timeout=_CLOSE_S)
        if not done:  # an abandoned call still waits for the server
            self._hang_up()
            await asyncio.wait([dropping], timeout=_CLOSE_S)

    async def _call(self, function: Callable[[Connection[Any]], Result]) -> Result:
        """Run a function as one transaction in the thread. Raises StoreUnavailable if the server does not respond."""
        calling: Future[Result] = self._thread.submit(self._run, function)
        answer = asyncio.wrap_future(calling)
        try:
            done, _ = await asyncio.wait([answer], timeout=self._answer_within_s)
            if done:
                return answer.result()
        finally:
            answer.cancel()
        self._hang_up()
        raise StoreUnavailable(f"{self._address} did not answer within {self._answer_within_s:g} s; it is tried again")

    def _run(self, function: Callable[[Connection[Any]], Result]) -> Result:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._address)
            with self._connection.transaction():
                self._be_patient(self._connection)
                return function(self._connection)
        except (DriverError, OSError) as error:
            raise translated(error, self._address) from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _be_patient(self, connection: Connection[Any]) -> None:
        """Set server timeouts slightly shorter than ours, so that the server reports the reason."""
        milliseconds = self._answer_within_s * 1000
        _rows(connection, "set_timeouts", statement_ms=f"{milliseconds * 0.8:.0f}", lock_ms=f"{milliseconds * 0.5:.0f}")

    def _hang_up(self) -> None:
        """Shut down the socket to end a stuck call: the thread finds its connection closed, and reconnects."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        try:
            with socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
        except (DriverError, OSError):
            pass  # it was closed concurrently


def _head(connection: Connection[Any]) -> AuditHead:
    rows = _rows(connection, "head")
    return AuditHead(*rows[0]) if rows else AuditHead()


def _exists(connection: Connection[Any]) -> bool:
    return bool(_rows(connection, "exists")[0][0])


def _entries(connection: Connection[Any], name: str, **bindings: Any) -> list[AuditEntry]:
    if not _exists(connection):
        return []
    return [AuditEntry(seq, bytes(body), digest) for seq, body, digest in _rows(connection, name, **bindings)]


def _rows(connection: Connection[Any], name: str, **bindings: Any) -> list[Any]:
    return connection.execute(_sql(name), bindings or None).fetchall()


@cache
def _sql(name: str) -> bytes:
    """Return a statement of audit.sql, as bytes: psycopg accepts them as trusted SQL."""
    return _sql_file()[name].encode()


@cache
def _sql_file() -> SqlFile:
    return SqlFile(Path(__file__).with_name("audit.sql"))
