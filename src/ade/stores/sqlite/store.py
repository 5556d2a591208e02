"""Opens a store on SQLite: checks the file, connects, migrates, and assembles the parts."""

import asyncio
import os
import time
from pathlib import Path

import apsw
from msgspec import structs

from ade.errors import DiskFull, StoreMissing, StoreReplaced
from ade.settings.sections import LimitSettings, StoreSettings
from ade.stores import later
from ade.stores.ports import Clock, Stores, UpgradedStore, Wakeups
from ade.stores.resource_ports import InboxStore
from ade.stores.sqlite.agents import SqliteAgents
from ade.stores.sqlite.blobs import SqliteBlobs
from ade.stores.sqlite.connection import MachineClock, check_process, connect, settle_offset, translating, value
from ade.stores.sqlite.documents import SqliteDocuments
from ade.stores.sqlite.effects import SqliteEffects, SqliteOutputs
from ade.stores.sqlite.event_log import SqliteEvents
from ade.stores.sqlite.file_identity import STORE_ID, FileIdentity, check_other_processes, log_state
from ade.stores.sqlite.files import DatabaseFiles, audit_file, check_may_create, drop_ballast, place_of, prepare
from ade.stores.sqlite.locks import SqliteLocks
from ade.stores.sqlite.maintenance import SqliteMaintenance, upgrade_database
from ade.stores.sqlite.queues import SqliteQueues, SqliteSchedules
from ade.stores.sqlite.readers import FileReaders, MemoryReaders, Readers
from ade.stores.sqlite.schema import migrations
from ade.stores.sqlite.sweeps import SqliteSweeps
from ade.stores.sqlite.tasks import SqliteBlockingInserts, SqliteTasks
from ade.stores.sqlite.wakeups import FileWakeups
from ade.stores.sqlite.workers import SqliteWorkers
from ade.stores.sqlite.writer import FileWriteChecks, LeaseWriter, Transactions, WriteChecks, Writer
from ade.stores.wakeups import LocalWakeups

_opened: set[str] = set()  # files that this process has had open


async def open_sqlite(
    url: str,
    settings: StoreSettings,
    clock: Clock | None = None,
    *,
    limits: LimitSettings | None = None,
    store_id: str = "",
) -> Stores:
    """Open a sqlite:/// or memory:// store. Raises before anything is changed if the file must not be used.

    With `store_id`, it must be the store with this ID: raises StoreReplaced if it is another one.
    """
    return await asyncio.to_thread(_open, url, settings, clock, limits.queue_depth if limits else 0, store_id)


def _open(url: str, settings: StoreSettings, clock: Clock | None, queue_depth: int, store_id: str) -> Stores:
    place = place_of(url)
    if place is None:
        return _open_with(url, None, settings, clock, queue_depth, _Opening(None, None, settings, is_remote=False))
    remote = prepare(place, allow_network=settings.allow_network_fs)
    opening = _Opening(place, FileIdentity(place), settings, is_remote=remote, store_id=store_id)
    opening.check(audit_file(url))
    stores = _open_with(url, place, settings, clock, queue_depth, opening)
    _opened.add(str(place.path))
    return structs.replace(stores, id=opening.store_id)


class _Opening:
    """Opens the connections of one store: only the first one may create the file, and only if there never was one."""

    def __init__(
        self,
        place: DatabaseFiles | None,
        identity: FileIdentity | None,
        settings: StoreSettings,
        *,
        is_remote: bool,
        store_id: str = "",
    ) -> None:
        self._place = place
        self._identity = identity
        self._settings = settings
        self.is_remote = is_remote
        self.store_id = store_id
        self._may_create = not store_id
        self._logs: dict[str, bool] = {}
        free, ballast = settings.min_free_percent, settings.ballast_mb
        self.guard = WriteChecks()
        if place is not None and identity is not None:
            self.guard = FileWriteChecks(place, identity, min_free_percent=free, ballast_mb=ballast)

    def check(self, audit: Path | None) -> None:
        """Raise StoreMissing or StoreReplaced if the file must not be opened or created."""
        assert self._place is not None
        check_may_create(self._place, audit)
        if not self.is_remote:
            check_other_processes(self._place)
            self._logs = log_state(self._place)
        self._may_create = self._may_create and str(self._place.path) not in _opened
        if not self._may_create and not self._place.path.exists():
            raise StoreMissing(
                f"{self._place.path} was removed, and no process creates a store again that existed before. Restore the"
                " file or its newest backup; to start with an empty store, start a new process"
            )

    def connect(self) -> apsw.Connection:
        """Open a connection."""
        try:
            connection = self._connect()
        except DiskFull:  # a worker that starts on a full disk can still finish running tasks
            if self._place is None or not drop_ballast(self._place):
                raise
            connection = self._connect()
        self._may_create = False
        return connection

    def _connect(self) -> apsw.Connection:
        path = None if self._place is None else self._place.path
        synchronous, create = self._settings.synchronous, path is None or self._may_create
        return connect(path, synchronous=synchronous, network=self.is_remote, create=create)

    def settle(self, writer: Writer, *, is_timed: bool) -> int:
        """Write what a store must have: its ID, its file, and the offset of its clock, which is returned."""

        def write(connection: apsw.Connection) -> int:
            if self._identity is not None:
                _check_store(connection, self.store_id)
                now = time.time_ns() // 1_000_000
                self._identity.settle(connection, new_id=os.urandom(16).hex(), now=now, **self._logs)
            return settle_offset(connection) if is_timed else 0

        offset = int(writer.call_blocking(write))
        if self._identity is not None:
            self.store_id = self._identity.store_id
            if self._identity.is_new_file and not self.is_remote:
                _checkpoint(self.connect())
        self.guard.settle()
        return offset


def _open_with(
    url: str,
    place: DatabaseFiles | None,
    settings: StoreSettings,
    clock: Clock | None,
    queue_depth: int,
    opening: _Opening,
) -> Stores:
    writer = Writer(Transactions(opening.connect, str(place.path) if place else url, opening.guard))
    try:
        with translating(url):
            offset = opening.settle(writer, is_timed=clock is None)
            return _assemble(writer, opening, place, settings, queue_depth, clock or MachineClock(offset))
    except BaseException:
        writer.close()
        raise


async def upgrade_sqlite(url: str, settings: StoreSettings, copy_to: Path | None = None) -> UpgradedStore:
    """Upgrade a database to the schema of this release, after a copy of it was made."""
    place = place_of(url)
    if place is None:
        return UpgradedStore(before=len(migrations()), after=len(migrations()))
    prepare(place, allow_network=settings.allow_network_fs)
    return await asyncio.to_thread(upgrade_database, place, copy_to)


def _checkpoint(connection: apsw.Connection) -> None:
    """Write what is in the log into the file, so that a copy of the file alone can be recognized as one."""
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    finally:
        connection.close()


def _check_store(connection: apsw.Connection, store_id: str) -> None:
    """Raise StoreReplaced if the store must have an ID, and has another one."""
    if store_id and value(connection, "meta.get", key=STORE_ID) != store_id:
        raise StoreReplaced(f"{connection.filename} is another store than the one that was in use before")


def _assemble(
    writer: Writer,
    opening: _Opening,
    place: DatabaseFiles | None,
    settings: StoreSettings,
    queue_depth: int,
    timing: Clock,
) -> Stores:
    guard, new_connection = opening.guard, opening.connect
    readers = FileReaders(place.path, guard) if place else MemoryReaders(writer)
    wakeups = FileWakeups(place.wakeups, database=place.path, is_remote=opening.is_remote) if place else LocalWakeups()
    shared = None if settings.blob_dir is None else Path(settings.blob_dir)
    blobs = SqliteBlobs((shared or place.blobs) if place else None, now=timing.now, is_shared=shared is not None)
    renewals = LeaseWriter(writer, Transactions(new_connection, "the lease renewal", guard) if place else None)
    tasks = SqliteTasks(writer, readers, timing, wakeups, guard, queue_depth or None)
    opened_by = os.getpid()

    async def close() -> None:
        def close_all() -> None:
            check_process(opened_by)
            wakeups.close()
            readers.close()
            renewals.close()
            writer.close()

        await asyncio.to_thread(close_all)

    return Stores(
        tasks=tasks,
        sweeps=SqliteSweeps(writer, readers, timing, blobs),
        workers=SqliteWorkers(writer, readers, timing, renewals),
        queues=SqliteQueues(writer, readers),
        events=SqliteEvents(writer, readers),
        effects=SqliteEffects(writer, readers, timing),
        outputs=SqliteOutputs(writer, readers),
        schedules=SqliteSchedules(writer, readers),
        blobs=blobs,
        locks=SqliteLocks(writer, readers, timing, wakeups),
        agents=SqliteAgents(writer, readers, timing, wakeups, renewals),
        documents=SqliteDocuments(writer, readers, timing, wakeups),
        inboxes=later(lambda: _inboxes(writer, readers, timing, wakeups, guard)),
        maintenance=SqliteMaintenance(writer, readers, timing, place, guard, blobs, settings, new_connection),
        wakeups=wakeups,
        clock=timing,
        blocking=SqliteBlockingInserts(tasks),
        closer=close,
    )


def _inboxes(writer: Writer, readers: Readers, clock: Clock, wakeups: Wakeups, guard: WriteChecks) -> InboxStore:
    from ade.stores.sqlite.inboxes import SqliteInboxes  # 2 ms and 140 KiB, not needed without agents

    return SqliteInboxes(writer, readers, clock, wakeups, guard)
