"""The audit copy on SQLite: a separate file next to the database, made append-only by triggers."""

import asyncio
import gzip
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec import structs

from ade.errors import StoreForeign
from ade.events.audit_chain import AuditEntry, AuditHead, chain
from ade.events.model import Event
from ade.stores.sql_files import SqlFile
from ade.stores.sqlite.connection import check_library, patiently, translating, write_transaction
from ade.stores.sqlite.files import audit_file, make_folder, sync_folder
from ade.stores.sqlite.schema import one_read

_APPLICATION_ID = 0x41444541  # "ADEA"
_ROTATED_AT_ONCE = 5_000  # entries: other processes wait until they are removed
Result = TypeVar("Result")


async def open_audit(url: str) -> "SqliteAudit":
    """Open the audit copy of a sqlite:/// or memory:// store."""
    return await open_audit_file(audit_file(url))


async def open_audit_file(file: Path | None) -> "SqliteAudit":
    """Open the audit copy in this file and create the file if it is missing. None opens one in memory."""
    if file is not None and not file.parent.exists():
        with translating(str(file)):
            make_folder(file.parent)
    audit = SqliteAudit(file)
    await audit.head()
    return audit


class SqliteAudit:
    """An audit copy with one connection and one thread. Other processes can append to the same file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._name = ":memory:" if path is None else str(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ade-audit")
        self._connection: apsw.Connection | None = None

    async def head(self) -> AuditHead:
        return await self._call(_head)

    async def base(self) -> AuditHead:
        return await self._call(_base)

    async def rotate(self, max_bytes: int, folder: Path | None) -> int:
        """Move the oldest entries to a file in the folder, or drop them, if the copy is larger than `max_bytes`.

        Returns how many; call it again until it returns 0. The file is complete and synced before anything is removed.
        """

        def write(connection: apsw.Connection) -> int:
            with write_transaction(connection, self._name):
                if _used_bytes(connection) <= max_bytes:
                    return 0
                base = _base(connection)
                entries = _as_entries(_rows(connection, "read", after=base.seq, limit=_ROTATED_AT_ONCE))[:-1]
                if not entries:  # the last entry always stays: it is the head of the chain
                    return 0
                if folder is not None:
                    _archive(entries, folder)
                last = entries[-1]
                connection.execute(_sql()["create_base"]).fetchall()
                connection.execute(_sql()["set_base"], {"seq": last.seq, "hash": last.hash}).fetchall()
                connection.execute(_sql()["rotate"], {"seq": last.seq}).fetchall()
                return len(entries)

        return await self._call(write)

    async def append(self, events: Sequence[Event]) -> AuditHead:
        def write(connection: apsw.Connection) -> AuditHead:
            with write_transaction(connection, self._name):
                head = _head(connection)
                entries = chain(head, [event for event in events if event.seq > head.seq])
                connection.executemany(_sql()["append"], [structs.asdict(entry) for entry in entries])
                return AuditHead(entries[-1].seq, entries[-1].hash) if entries else head

        return await self._call(write)

    async def entries(self, after: int, limit: int) -> list[AuditEntry]:
        def read(connection: apsw.Connection) -> list[AuditEntry]:
            return _as_entries(_rows(connection, "read", after=after, limit=limit))

        return await self._call(read)

    async def last_entries(self, limit: int) -> list[AuditEntry]:
        return await self._call(lambda connection: _as_entries(_rows(connection, "list_newest", limit=limit))[::-1])

    async def count(self) -> int:
        return await self._call(lambda connection: int(_rows(connection, "count")[0][0]))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, connection.close)
        self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[[apsw.Connection], Result]) -> Result:
        def run() -> Result:
            with translating(self._name):
                if self._connection is None:
                    self._connection = _connect(self._name)
                return function(self._connection)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


def _head(connection: apsw.Connection) -> AuditHead:
    rows = _rows(connection, "head")
    return AuditHead(*rows[0]) if rows else AuditHead()


def _base(connection: apsw.Connection) -> AuditHead:
    rows = _rows(connection, "base") if _rows(connection, "has_base") else []
    return AuditHead(*rows[0]) if rows else AuditHead()


def _used_bytes(connection: apsw.Connection) -> int:
    pages, free, size = (int(str(connection.pragma(name))) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def _archive(entries: Sequence[AuditEntry], folder: Path) -> None:
    """Write the entries as compressed JSON lines in the format of `ade audit export`."""
    make_folder(folder)
    path = folder / f"audit-{entries[0].seq}-{entries[-1].seq}.jsonl.gz"
    unfinished = path.with_name(f"{path.name}.part")
    with unfinished.open("wb") as file:
        with gzip.GzipFile(fileobj=file, mode="wb") as packed:
            for entry in entries:
                line = {"seq": entry.seq, "hash": entry.hash, "event": msgspec.Raw(entry.body)}
                packed.write(msgspec.json.encode(line) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(folder)


def _connect(name: str) -> apsw.Connection:
    check_library()
    connection = apsw.Connection(name)
    try:
        patiently(lambda: _set_up(connection), what=name)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: apsw.Connection) -> None:
    with one_read(connection):
        is_foreign = not _is_ours(connection) and not _is_empty(connection)
    if is_foreign:
        raise StoreForeign("the audit file is a database of another program; move it. Nothing was changed")
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA mmap_size=0")
    if not _is_ours(connection):
        with write_transaction(connection, "the audit file"):
            if not _is_ours(connection):  # checked again under the lock: another process might have created it
                connection.execute(_sql()["create"]).fetchall()
                connection.pragma("application_id", _APPLICATION_ID)


def _is_ours(connection: apsw.Connection) -> bool:
    return bool(connection.pragma("application_id") == _APPLICATION_ID)


def _is_empty(connection: apsw.Connection) -> bool:
    schema = connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    return not schema and bool(connection.pragma("application_id") == 0)


def _rows(connection: apsw.Connection, name: str, **bindings: Any) -> list[Any]:
    return connection.execute(_sql()[name], bindings).fetchall()


def _as_entries(rows: list[Any]) -> list[AuditEntry]:
    return [AuditEntry(seq, _as_bytes(body), digest) for seq, body, digest in rows]


def _as_bytes(body: bytes | str) -> bytes:
    """Convert a body that was tampered with (stored as text) to bytes, so that verification compares and rejects it."""
    return body if isinstance(body, bytes) else str(body).encode()


@cache
def _sql() -> SqlFile:
    return SqlFile(Path(__file__).with_name("audit.sql"))  # importlib.resources is large and slow to import
