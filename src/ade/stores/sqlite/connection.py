"""Connections: opened, checked and set up in one way; SQLite's errors become ours at this border."""

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
    StoreForeign,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    StoreUnsupported,
)
from ade.stores.sql_files import SqlFile

# The SQL statements of the store, by name: `locks.get` is in sql/locks.sql, which is read when first used.


_PACKAGE = Path(__file__).parent  # importlib.resources would double the time it takes to load this module


@cache
def sql(name: str) -> str:
    """The text of a statement. Raises LookupError when it does not exist."""
    return _sql_file(name.partition(".")[0])[name]


@cache
def _sql_file(table: str) -> SqlFile:
    try:
        return SqlFile(_PACKAGE / "sql" / f"{table}.sql")
    except FileNotFoundError:
        raise LookupError(f'No SQL statement is in "{table}": sql/{table}.sql does not exist.') from None


@cache
def migrations() -> tuple[str, ...]:
    """The migrations in order; the version of a database is the number of migrations applied to it."""
    folder = _PACKAGE / "migrations"
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".sql"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


def run(connection: apsw.Connection, statement: str, /, **bindings: Any) -> list[Any]:
    """Execute the statement and return all its rows (always drained, so that a commit can follow)."""
    return connection.execute(sql(statement), bindings).fetchall()


def value(connection: apsw.Connection, statement: str, /, **bindings: Any) -> Any:
    """The first column of the first row, or None."""
    rows = run(connection, statement, **bindings)
    return rows[0][0] if rows else None


APPLICATION_ID = 0x41444551  # "ADEQ"
SAFE_SQLITE = (3, 51, 3)  # the first release with the WAL-reset fix and jsonb_each
PATIENCE_S = 60.0
Result = TypeVar("Result")


def check_library(version: str | None = None) -> None:
    """Refuse an SQLite with the WAL-reset corruption bug."""
    text = version or apsw.sqlite_lib_version()
    major, minor, patch = (int(part) for part in text.split(".")[:3])
    if (major, minor, patch) < SAFE_SQLITE:
        raise StoreUnsupported(f"SQLite {text} can corrupt a WAL database; install apsw with SQLite 3.51.3 or newer")


def is_full(error: Exception) -> bool:
    """Whether the disk has no room; also when it was the index of the write-ahead log that found none."""
    no_index = isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    return no_index or isinstance(error, apsw.FullError)


def translated(error: apsw.Error | OSError, what: str) -> StoreError:
    """Our error for one of SQLite's."""
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
            return StoreUnavailable(f"{what} is held by another program for too long; try again")
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return DiskFull(f"the disk that holds {what} is full. Free some space and try again")
        case OSError(errno=errno.EROFS | errno.EACCES | errno.EPERM):
            return StoreReadOnly(f"{what} cannot be written ({error}). Check owner, mode and mount")
        case _:
            return StoreUnavailable(f"{what}: {type(error).__name__}: {error}")


@contextmanager
def translating(what: str) -> Iterator[None]:
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise translated(error, what) from error


def check_process(opened_by: int) -> None:
    """SQLite's connections and our threads do not survive a fork."""
    if os.getpid() != opened_by:
        raise StoreUnsupported("the store was opened before a fork; open it in the process that uses it")


def connect(
    path: Path | None, *, synchronous: str = "full", network: bool = False, create: bool = True
) -> apsw.Connection:
    """A connection for reading and writing, set up and migrated. `path` None is a private in-memory database.

    Without `create` a file that is gone is an error, not the beginning of a new, empty database.
    """
    check_library()
    name = str(path) if path else ":memory:"
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create or path is None else 0)
    with translating(name):
        connection = apsw.Connection(name, flags=flags)
        try:
            patiently(lambda: _set_up(connection, synchronous=synchronous, network=network), what=name)
            patiently(lambda: migrate(connection), what=name)
        except BaseException:
            connection.close()
            raise
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """A connection that can only read. The database exists and is up to date."""
    with translating(str(path)):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(2000)
        connection.execute("PRAGMA mmap_size=0")
        connection.execute("PRAGMA query_only=1")
    return connection


def is_current(connection: apsw.Connection) -> bool:
    """Whether the file is ours and its schema is the one this version knows."""
    found = (connection.pragma("application_id"), connection.pragma("user_version"))
    return found == (APPLICATION_ID, len(migrations()))


def _set_up(connection: apsw.Connection, *, synchronous: str, network: bool) -> None:
    connection.set_busy_timeout(0)  # SQLite's own handler starves the loser; `patiently` waits at random instead
    connection.execute("PRAGMA mmap_size=0")
    connection.execute("PRAGMA trusted_schema=0")
    _check_owner(connection)
    connection.execute(f"PRAGMA journal_mode={'DELETE' if network else 'WAL'}").fetchall()
    connection.execute(f"PRAGMA synchronous={synchronous.upper()}")
    connection.execute("PRAGMA wal_autocheckpoint=4000")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA cache_size=-16000")


@contextmanager
def one_read(connection: apsw.Connection) -> Iterator[None]:
    """Everything that is read inside was so at one moment: between two looks another program may have made the file."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check_owner(connection: apsw.Connection) -> None:
    """Nothing has been written yet: a foreign or newer file stays as it is."""
    with one_read(connection):
        owner = connection.pragma("application_id")
        version = connection.pragma("user_version")
        has_tables = bool(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall())
    if owner == APPLICATION_ID:
        if isinstance(version, int) and version > len(migrations()):
            raise StoreTooNew(
                f"{connection.filename} has schema {version}, this ADE knows up to {len(migrations())}. Upgrade ADE;"
                " nothing was changed"
            )
    elif owner or version or has_tables:
        raise StoreForeign(
            f"{connection.filename} is an SQLite database of another program. Choose another path; nothing was changed"
        )


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema up to date, all or nothing."""
    if connection.pragma("user_version") == len(migrations()):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.pragma("user_version")
        assert isinstance(version, int)
        for script in migrations()[version:]:
            connection.execute(script).fetchall()
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(migrations()))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def patiently(action: Callable[[], Result], *, what: str, patience_s: float = PATIENCE_S) -> Result:
    """Run the action; while another process holds the lock, wait a random short time and try again."""
    deadline = time.monotonic() + patience_s
    pause = 0.0005
    while True:
        try:
            return action()
        except (apsw.BusyError, apsw.LockedError) as error:
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"{what} is held by another program for too long; try again") from error
            time.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 1.05, 0.004)


@contextmanager
def write_transaction(connection: apsw.Connection, what: str) -> Iterator[None]:
    """BEGIN IMMEDIATE ... COMMIT, or nothing at all."""
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"), what=what)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# Time. Leases are judged on a clock that never jumps and that every process on this machine shares.


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Which boot of the machine this is; the monotonic clock starts anew with each."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # not Linux: the time of the boot, to ten minutes, tells boots apart well enough
        return f"about-{int(time.time() - time.monotonic()) // 600}"


class MachineClock:
    """Wall time for records; for leases the machine's monotonic time plus an offset kept in the database.

    The offset is set once per boot, so a wall clock that is put right (or wrong) moves no lease.
    """

    def __init__(self, offset_ms: int = 0) -> None:
        self._offset_ms = offset_ms

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._offset_ms

    def drift_ms(self) -> int:
        """How far the wall clock has moved away from the steady one since the boot's first use."""
        return self.now() - self.steady()


def cached_offset(connection: apsw.Connection) -> int | None:
    """The offset of this boot if it is settled."""
    if value(connection, "meta.get", key="boot_id") != boot_id():
        return None
    return int(value(connection, "meta.get", key="steady_offset_ms"))


def settle_offset(connection: apsw.Connection) -> int:
    """The offset of this boot. After a reboot steady time goes on from where it can have been at most."""
    boot = boot_id()
    if value(connection, "meta.get", key="boot_id") != boot:
        wall = time.time_ns() // 1_000_000
        latest = value(connection, "meta.latest_lease") or 0
        offset = max(wall, latest) - time.monotonic_ns() // 1_000_000
        run(connection, "meta.set", key="boot_id", value=boot)
        run(connection, "meta.set", key="steady_offset_ms", value=str(offset))
    return int(value(connection, "meta.get", key="steady_offset_ms"))
