"""SQLite connections: named statements, setup, error translation, transactions, and the machine clock."""

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ade.errors import (
    DiskFull,
    StoreCorrupt,
    StoreError,
    StoreMissing,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnsupported,
)
from ade.stores.sql_files import SqlFile
from ade.stores.sqlite.schema import check_schema, create_schema

_PACKAGE = Path(__file__).parent  # importlib.resources would double the import time of this module


@cache
def sql(name: str) -> str:
    """Return a statement: `locks.get` is in sql/locks.sql, read on first use. Raises LookupError."""
    return _sql_file(name.partition(".")[0])[name]


@cache
def _sql_file(table: str) -> SqlFile:
    try:
        return SqlFile(_PACKAGE / "sql" / f"{table}.sql")
    except FileNotFoundError:
        raise LookupError(f'No SQL statement is in "{table}": sql/{table}.sql does not exist.') from None


def run(connection: apsw.Connection, statement: str, /, **bindings: Any) -> list[Any]:
    """Execute the statement and return all its rows (always drained, so that a commit can follow)."""
    return connection.execute(sql(statement), bindings).fetchall()


def value(connection: apsw.Connection, statement: str, /, **bindings: Any) -> Any:
    """Execute the statement and return the first column of the first row, or None."""
    rows = run(connection, statement, **bindings)
    return rows[0][0] if rows else None


SAFE_SQLITE = (3, 51, 3)  # the first release with the WAL-reset fix and jsonb_each
RULES_VERSION = "rules_version"  # in the table `meta`: counts the commits that changed rules or settings
PATIENCE_S = 60.0
Result = TypeVar("Result")


def check_library(version: str | None = None) -> None:
    """Raise StoreUnsupported for an SQLite version with the WAL-reset corruption bug."""
    text = version or apsw.sqlite_lib_version()
    major, minor, patch = (int(part) for part in text.split(".")[:3])
    if (major, minor, patch) < SAFE_SQLITE:
        raise StoreUnsupported(f"SQLite {text} can corrupt a WAL database; install apsw with SQLite 3.51.3 or newer")


def is_full(error: Exception) -> bool:
    """Return whether the disk is full, including when SQLite could not extend the WAL index (-shm file)."""
    no_index = isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    return no_index or isinstance(error, apsw.FullError)


def translated(error: apsw.Error | OSError, what: str) -> StoreError:
    """Return the ADE error for an SQLite or operating system error."""
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorrupt(f"{what} is damaged ({error}). Restore the newest backup; do not write to it")
        case _ if is_full(error):
            return DiskFull(f"the disk that holds {what} is full. Free some space; running work is kept")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreReadOnly(f"{what} cannot be written ({error}). Check owner, mode and mount")
        case apsw.CantOpenError():
            return StoreReadOnly(f"{what} cannot be opened ({error}). Check that the folder exists and is yours")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{what} was locked by another program for too long; try again")
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return DiskFull(f"the disk that holds {what} is full. Free some space and try again")
        case OSError(errno=errno.EROFS | errno.EACCES | errno.EPERM):
            return StoreReadOnly(f"{what} cannot be written ({error}). Check owner, mode and mount")
        case _:
            return StoreUnavailable(f"{what}: {type(error).__name__}: {error}")


@contextmanager
def translating(what: str) -> Iterator[None]:
    """Raise SQLite and operating system errors inside the block as ADE errors."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise translated(error, what) from error


def check_process(opened_by: int) -> None:
    """Raise StoreUnsupported after a fork: neither SQLite connections nor threads survive it."""
    if os.getpid() != opened_by:
        raise StoreUnsupported("the store was opened before a fork; open it in the process that uses it")


def connect(
    path: Path | None, *, synchronous: str = "full", network: bool = False, create: bool = True
) -> apsw.Connection:
    """Open a read-write connection. `path` None is a private in-memory database.

    A new database gets its tables; without `create`, a missing or empty file is an error. The schema of another release
    is never changed: raises StoreTooOld or StoreTooNew.
    """
    check_library()
    name = str(path) if path else ":memory:"
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create or path is None else 0)
    with translating(name):
        connection = apsw.Connection(name, flags=flags)
        connection.set_busy_timeout(0)  # SQLite's handler can starve a waiter; `patiently` retries with random pauses
        try:
            is_new = patiently(lambda: not check_schema(connection), what=name)
            if is_new and not create:
                raise StoreMissing(f"{name} is empty, and no process creates a store again that existed before")
            patiently(lambda: _set_up(connection, synchronous=synchronous, network=network), what=name)
            if is_new:
                patiently(lambda: create_schema(connection), what=name)
        except BaseException:
            connection.close()
            raise
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """Open a read-only connection to a database that exists and has the current schema."""
    with translating(str(path)):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(2000)
        connection.execute("PRAGMA mmap_size=0")
        connection.execute("PRAGMA query_only=1")
    return connection


def _set_up(connection: apsw.Connection, *, synchronous: str, network: bool) -> None:
    connection.execute("PRAGMA mmap_size=0")
    connection.execute("PRAGMA trusted_schema=0")
    connection.execute(f"PRAGMA journal_mode={'DELETE' if network else 'WAL'}").fetchall()
    connection.execute(f"PRAGMA synchronous={synchronous.upper()}")
    connection.execute("PRAGMA wal_autocheckpoint=4000")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA cache_size=-16000")


def patiently(action: Callable[[], Result], *, what: str, patience_s: float = PATIENCE_S) -> Result:
    """Run the action, and retry it with short random pauses while another process holds the database lock.

    Raises StoreUnavailable after `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    pause = 0.0005
    while True:
        try:
            return action()
        except (apsw.BusyError, apsw.LockedError) as error:
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"{what} was locked by another program for too long; try again") from error
            time.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 1.05, 0.004)


@contextmanager
def write_transaction(connection: apsw.Connection, what: str) -> Iterator[None]:
    """Run the block between BEGIN IMMEDIATE and COMMIT, and roll back on any error."""
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"), what=what)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# Leases use a clock that never jumps and that all processes on this machine share.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return an ID of the current boot. The monotonic clock restarts at every boot."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # not Linux: the boot time, rounded to 10 minutes, distinguishes boots well enough
        return f"about-{int(time.time() - time.monotonic()) // 600}"


class MachineClock:
    """Wall time for records; for leases, the monotonic time of the machine plus an offset stored in the database.

    The offset is set once per boot, so adjusting the wall clock does not change any lease.
    """

    def __init__(self, offset_ms: int = 0) -> None:
        self._offset_ms = offset_ms

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._offset_ms

    def judged(self, lease_ms: int) -> int:
        """The steady time: it never jumps."""
        return self.steady()

    def drift_ms(self) -> int:
        """Return how far the wall clock has drifted from the steady clock since the first use after boot."""
        return self.now() - self.steady()


def cached_offset(connection: apsw.Connection) -> int | None:
    """Return the stored clock offset of this boot; None if it is not set yet."""
    if value(connection, "meta.get", key="boot_id") != boot_id():
        return None
    return int(value(connection, "meta.get", key="steady_offset_ms"))


def settle_offset(connection: apsw.Connection) -> int:
    """Return the clock offset of this boot, and set it after a reboot.

    Steady time then continues from the latest value it can have had, so that it never goes back.
    """
    boot = boot_id()
    if value(connection, "meta.get", key="boot_id") != boot:
        wall = time.time_ns() // 1_000_000
        latest = value(connection, "meta.latest_lease") or 0
        offset = max(wall, latest) - time.monotonic_ns() // 1_000_000
        run(connection, "meta.set", key="boot_id", value=boot)
        run(connection, "meta.set", key="steady_offset_ms", value=str(offset))
    return int(value(connection, "meta.get", key="steady_offset_ms"))
