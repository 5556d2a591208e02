"""MaintenanceStore on SQLite, the care of the database itself: health, WAL checkpoints, backups, and invariants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw

from ade.errors import StoreError, StoreReadOnly
from ade.logs import Log
from ade.settings.sections import StoreSettings
from ade.stores.ports import StoreHealth
from ade.stores.sql_files import SqlFile
from ade.stores.sqlite.blobs import SqliteBlobs
from ade.stores.sqlite.connection import MachineClock, connect_reader, translating
from ade.stores.sqlite.files import DatabaseFiles, free_percent, sync_folder
from ade.stores.sqlite.readers import Readers
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
_log = Log("ade.store")


class SqliteMaintenance:
    """MaintenanceStore: health, checkpoints, and backups of one database."""

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

    async def check_invariants(self) -> list[str]:
        return await self._readers.call(broken_invariants)

    async def health(self, *, thorough: bool = True) -> StoreHealth:
        facts = await self._readers.call(_database_facts)
        if thorough:
            facts |= await self._readers.call(_checked_facts)
        warnings = []
        if facts.get("quick_check", "ok") != "ok":
            warnings.append(f"the database is damaged: {facts['quick_check']}. Restore the newest backup")
        if self._place is not None:
            facts |= self._file_facts(self._place)
            warnings += self._file_warnings(self._place)
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

    async def checkpoint(self) -> None:
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
        path = Path(target)
        unfinished = _unfinished_backup(path)
        source = connect_reader(self._place.path)
        with translating(str(path)):
            copy = apsw.Connection(str(unfinished))
            try:
                _hold_still(source)
                with copy.backup("main", source, "main") as backup:
                    while not backup.done:
                        await asyncio.to_thread(_backup_step, backup)
                        yield backup.page_count - backup.remaining, backup.page_count
                copy.execute("PRAGMA journal_mode=DELETE").fetchall()
                copy.close()
                await asyncio.to_thread(self._blobs.copy_to, DatabaseFiles(path).blobs)
                unfinished.replace(path)
                sync_folder(path.parent)
            finally:
                copy.close()
                source.close()
                unfinished.unlink(missing_ok=True)


def _unfinished_backup(path: Path) -> Path:
    """Return the path to write the copy to until it is complete. Raises if the target cannot be created."""
    if path.exists():
        raise StoreError(f"{path} exists already; name a new file for the backup")
    if not path.parent.is_dir():
        raise StoreReadOnly(f"the folder {path.parent} does not exist; make it first")
    unfinished = path.with_name(path.name + ".part")
    unfinished.unlink(missing_ok=True)
    return unfinished


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


def _database_facts(connection: apsw.Connection) -> dict[str, object]:
    return {
        "sqlite": apsw.sqlite_lib_version(),
        "schema": connection.pragma("user_version"),
        "journal_mode": connection.pragma("journal_mode"),
    }


def _checked_facts(connection: apsw.Connection) -> dict[str, object]:
    """Check the database; reads the whole file."""
    return {"quick_check": connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
