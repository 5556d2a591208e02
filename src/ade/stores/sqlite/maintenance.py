"""MaintenanceStore on SQLite, the care of the database itself: health, WAL checkpoints, backups, and invariants."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from ade.errors import DiskFull, StoreError, StoreMissing, StoreReadOnly, StoreTooOld
from ade.logs import Log
from ade.settings.sections import StoreSettings
from ade.stores.ports import StoreHealth, UpgradedStore
from ade.stores.sql_files import SqlFile
from ade.stores.sqlite.blobs import SqliteBlobs
from ade.stores.sqlite.connection import (
    MachineClock,
    check_library,
    connect_reader,
    patiently,
    run,
    translating,
    value,
    write_transaction,
)
from ade.stores.sqlite.file_identity import FILE, LOG_MISSING, check_other_processes
from ade.stores.sqlite.files import DatabaseFiles, free_bytes, free_percent, sync_folder
from ade.stores.sqlite.readers import Readers
from ade.stores.sqlite.schema import apply_migrations, check_schema, migrations, schema_version
from ade.stores.sqlite.writer import WriteChecks, Writer

INVARIANTS = Path(__file__).parent / "invariants.sql"


def broken_invariants(connection: apsw.Connection) -> list[str]:
    """Run the statements of invariants.sql. Returns a message per violation, at most a few per invariant."""
    statements = SqlFile(INVARIANTS)
    return [
        f"{name}: {sentence}" for name in statements for (sentence,) in connection.execute(statements[name]).fetchall()
    ]


_PAGES_PER_STEP = 1000
_WORRYING_DRIFT_MS = 5_000
_PROBE_EVERY_S = 1.0
_LOG_MISSING_SHOWN_MS = 7 * 86_400_000
_log = Log("ade.store")


class SqliteMaintenance:
    """MaintenanceStore: health, checkpoints, and backups of one database."""

    has_keys = False

    def __init__(
        self,
        writer: Writer,
        readers: Readers,
        clock: object,
        place: DatabaseFiles | None,
        guard: WriteChecks,
        blobs: SqliteBlobs,
        settings: StoreSettings,
        connect: Callable[[], apsw.Connection],
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._place = place
        self._guard = guard
        self._blobs = blobs
        self._settings = settings
        self._connect = connect
        self._written_at = float("-inf")

    async def check_invariants(self) -> list[str]:
        return await self._readers.call(broken_invariants, has_limit=False)  # reads the whole database

    async def health(self, *, thorough: bool = True) -> StoreHealth:
        facts = await self._readers.call(_database_facts)
        if thorough:
            facts |= await self._readers.call(_checked_facts, has_limit=False)
        warnings = []
        if facts.get("quick_check", "ok") != "ok":
            warnings.append(f"the database is damaged: {facts['quick_check']}. Restore the newest backup")
        if self._place is not None:
            self._guard.check_identity()
            facts |= self._file_facts(self._place)
            warnings += self._file_warnings(self._place)
            warnings += _log_warnings(await self._readers.call(_log_missing_since), time.time_ns() // 1_000_000)
        return StoreHealth(facts=facts, warnings=warnings + self._clock_warnings())

    def _file_facts(self, place: DatabaseFiles) -> dict[str, object]:
        return {
            "path": str(place.path),
            "size_mb": round(_size(place.path) / 2**20, 2),
            "wal_mb": round(_size(place.wal) / 2**20, 2),
            "disk_free_percent": round(free_percent(place.path.parent), 1),
            "ballast": place.ballast.exists(),
        }

    def _file_warnings(self, place: DatabaseFiles) -> list[str]:
        warnings = []
        if _size(place.wal) > self._settings.wal_alarm_mb << 20:
            warnings.append(
                f"the write-ahead log has {_size(place.wal) >> 20} MB (alarm at {self._settings.wal_alarm_mb}):"
                " some program holds a read transaction open for long; find and end it"
            )
        free = free_percent(place.path.parent)
        if free < self._settings.min_free_percent:
            warnings.append(f"only {free:.1f} % of the disk is free: no new task is taken in")
        if self._settings.ballast_mb and not place.ballast.exists():
            warnings.append("the ballast file is gone: the disk was full; it comes back when there is room")
        return warnings

    def _clock_warnings(self) -> list[str]:
        if not isinstance(self._clock, MachineClock) or abs(self._clock.drift_ms()) <= _WORRYING_DRIFT_MS:
            return []
        return [
            f"the wall clock has moved by {self._clock.drift_ms() / 1000:.0f} s since the first use after boot;"
            " leases are not affected, due times and schedules follow the wall clock"
        ]

    async def check_writable(self) -> None:
        self._guard.check_identity()
        now = time.monotonic()
        if now - self._written_at > _PROBE_EVERY_S:  # many may ask, and each write costs a sync
            await self._writer.call(_write_probe)
            self._written_at = now

    async def checkpoint(self, *, only_keys: bool = False) -> None:
        if self._place is None:
            return
        await asyncio.to_thread(self._checkpoint, self._place)
        for warning in self._file_warnings(self._place):
            _log.warning("store_needs_attention", warning=warning)
        self._guard.ensure_ballast()

    def _checkpoint(self, place: DatabaseFiles) -> None:
        """Truncate the write-ahead log once it is long. Never waits for readers or writers."""
        if (
            _size(place.wal) < self._settings.wal_alarm_mb << 19
        ):  # half the alarm: overwriting the log is cheaper than growing it
            return
        self._guard.check_identity()
        with translating(str(place.path)):
            connection = self._connect()
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                connection.close()

    async def backup(self, target: str) -> AsyncIterator[tuple[int, int]]:
        """Make a consistent copy with the SQLite backup API, while the store is in use."""
        if self._place is None:
            raise StoreError("a memory:// store has nothing to back up")
        self._guard.check_identity()
        path = Path(target)
        with translating(str(path)), _new_copy(self._place.path, path) as (source, copy):
            _hold_still(source)
            with copy.backup("main", source, "main") as backup:
                while not backup.done:
                    await asyncio.to_thread(_backup_step, backup)
                    yield backup.page_count - backup.remaining, backup.page_count
            _finish_copy(copy)
            await asyncio.to_thread(self._blobs.copy_to, DatabaseFiles(path).blobs)


@contextmanager
def _new_copy(database: Path, path: Path) -> Iterator[tuple[apsw.Connection, apsw.Connection]]:
    """Open the database and a new file for its copy, which gets its name when it is complete and closed."""
    if path.exists():
        raise StoreError(f"{path} exists already; name a new file for the backup")
    if not path.parent.is_dir():
        raise StoreReadOnly(f"the folder {path.parent} does not exist; make it first")
    unfinished = path.with_name(path.name + ".part")
    unfinished.unlink(missing_ok=True)
    source, copy = connect_reader(database), apsw.Connection(str(unfinished))
    try:
        yield source, copy
        unfinished.replace(path)
        sync_folder(path.parent)
    finally:
        copy.close()
        source.close()
        unfinished.unlink(missing_ok=True)


def _hold_still(source: apsw.Connection) -> None:
    """Open a read snapshot: otherwise every write restarts the copy, and under load it never finishes.

    Without a write-ahead log, writers would wait for the whole copy, so there the copy can restart.
    """
    if source.pragma("journal_mode") == "wal":
        source.execute("BEGIN")
        source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()


def _backup_step(backup: apsw.Backup) -> None:
    try:
        backup.step(_PAGES_PER_STEP)
    except (apsw.BusyError, apsw.LockedError):
        return  # a writer has the lock: the next step continues


def _finish_copy(copy: apsw.Connection) -> None:
    """Make the copy one complete file, which is not mistaken for one that was copied without its log."""
    copy.execute("PRAGMA journal_mode=DELETE").fetchall()
    run(copy, "meta.remove", key=FILE)
    copy.close()


def upgrade_database(place: DatabaseFiles, copy_to: Path | None = None) -> UpgradedStore:
    """Upgrade the database to the schema of this release in one transaction, after a copy of it was made.

    Other processes cannot write meanwhile, so the copy has everything. Blobs are not copied, because an upgrade changes
    none. Raises DiskFull, StoreTooNew, StoreForeign, StoreReplaced; then nothing was changed.
    """
    check_library()
    check_other_processes(place)
    name = str(place.path)
    with translating(name):
        connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.execute("PRAGMA mmap_size=0")
            connection.execute("PRAGMA synchronous=FULL")
            if not patiently(lambda: _must_be_upgraded(connection), what=name):
                return UpgradedStore(before=len(migrations()), after=len(migrations()))
            with write_transaction(connection, name):
                before = schema_version(connection)
                if before == len(migrations()):  # another process was faster
                    return UpgradedStore(before=before, after=before)
                copy = _copy_before_upgrade(place, before, copy_to)
                apply_migrations(connection, before)
        finally:
            connection.close()
    return UpgradedStore(before=before, after=len(migrations()), copy=str(copy))


def _must_be_upgraded(connection: apsw.Connection) -> bool:
    """Raises StoreTooNew, StoreForeign, StoreMissing."""
    try:
        if not check_schema(connection):
            raise StoreMissing(f"{connection.filename} is empty; there is nothing to upgrade")
    except StoreTooOld:
        return True
    return False


def _copy_before_upgrade(place: DatabaseFiles, version: int, target: Path | None) -> Path:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = target or place.path.with_name(f"{place.path.name}.schema{version}-{moment}")
    needed = _size(place.path) + _size(place.wal)
    if path.parent.is_dir() and free_bytes(path.parent) < needed:
        raise DiskFull(
            f"the copy that an upgrade makes first needs {needed >> 20} MB next to {path}. Free some space, or name"
            " another place with --copy; nothing was changed"
        )
    with _new_copy(place.path, path) as (source, copy):
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                _backup_step(backup)
        _finish_copy(copy)
    return path


def _database_facts(connection: apsw.Connection) -> dict[str, object]:
    return {
        "sqlite": apsw.sqlite_lib_version(),
        "schema": connection.pragma("user_version"),
        "journal_mode": connection.pragma("journal_mode"),
    }


def _log_missing_since(connection: apsw.Connection) -> int | None:
    found = value(connection, "meta.get", key=LOG_MISSING)
    return None if found is None else int(found)


def _log_warnings(missing_since: int | None, now: int) -> list[str]:
    """Return a warning for some days after a database without its log was opened: later it cannot be repaired."""
    if missing_since is None or now - missing_since > _LOG_MISSING_SHOWN_MS:
        return []
    moment = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(missing_since / 1000))
    return [
        "the database was copied without its write-ahead log (-wal), or the log was removed: it was opened without one"
        f" at {moment}. If a process used the original then, the newest tasks are missing: compare with the original,"
        " and copy with `ade backup`"
    ]


def _write_probe(connection: apsw.Connection) -> None:
    """Write one row, for a check that writes are possible; it takes the same way to the disk as all others."""
    run(connection, "meta.count", key="probes")


def _checked_facts(connection: apsw.Connection) -> dict[str, object]:
    """Check the database; reads the whole file."""
    return {"quick_check": connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
