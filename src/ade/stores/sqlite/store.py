"""Opens a store on SQLite: checks the file, connects, migrates, and assembles the parts."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import apsw

from ade.errors import DiskFull
from ade.settings.sections import LimitSettings, StoreSettings
from ade.stores import later
from ade.stores.ports import Clock, Stores, Wakeups
from ade.stores.resource_ports import InboxStore
from ade.stores.sqlite.agents import SqliteAgents
from ade.stores.sqlite.blobs import SqliteBlobs
from ade.stores.sqlite.connection import MachineClock, check_process, connect, settle_offset, translating
from ade.stores.sqlite.documents import SqliteDocuments
from ade.stores.sqlite.effects import SqliteEffects, SqliteOutputs
from ade.stores.sqlite.event_log import SqliteEvents
from ade.stores.sqlite.files import DatabaseFiles, drop_ballast, place_of, prepare
from ade.stores.sqlite.locks import SqliteLocks
from ade.stores.sqlite.maintenance import SqliteMaintenance
from ade.stores.sqlite.queues import SqliteQueues, SqliteSchedules
from ade.stores.sqlite.readers import FileReaders, MemoryReaders, Readers
from ade.stores.sqlite.sweeps import SqliteSweeps
from ade.stores.sqlite.tasks import SqliteBlockingInserts, SqliteTasks
from ade.stores.sqlite.wakeups import FileWakeups
from ade.stores.sqlite.workers import SqliteWorkers
from ade.stores.sqlite.writer import FileWriteChecks, LeaseWriter, Transactions, WriteChecks, Writer
from ade.stores.wakeups import LocalWakeups


async def open_sqlite(
    url: str, settings: StoreSettings, clock: Clock | None = None, *, limits: LimitSettings | None = None
) -> Stores:
    """Open a sqlite:/// or memory:// store. Raises before anything is changed if the file must not be used."""
    return await asyncio.to_thread(_open, url, settings, clock, limits.queue_depth if limits else 0)


def _open(url: str, settings: StoreSettings, clock: Clock | None, queue_depth: int) -> Stores:
    place = place_of(url)
    remote = prepare(place, allow_network=settings.allow_network_fs) if place else False

    opened_before = False

    def connection_to(path: Path | None) -> apsw.Connection:
        return connect(path, synchronous=settings.synchronous, network=remote, create=not opened_before)

    def new_connection() -> apsw.Connection:
        nonlocal opened_before
        try:
            connection = connection_to(place.path if place else None)
        except DiskFull:  # a worker that starts on a full disk can still finish running tasks
            if place is None or not drop_ballast(place):
                raise
            connection = connection_to(place.path)
        opened_before = True
        return connection

    guard: WriteChecks = _file_guard(place, settings) if place else WriteChecks()
    writer = Writer(Transactions(new_connection, str(place.path) if place else url, guard))
    try:
        with translating(url):
            guard.settle()
            return _assemble(writer, guard, place, settings, queue_depth, clock, new_connection, is_remote=remote)
    except BaseException:
        writer.close()
        raise


def _file_guard(place: DatabaseFiles, settings: StoreSettings) -> FileWriteChecks:
    return FileWriteChecks(place, min_free_percent=settings.min_free_percent, ballast_mb=settings.ballast_mb)


def _assemble(
    writer: Writer,
    guard: WriteChecks,
    place: DatabaseFiles | None,
    settings: StoreSettings,
    queue_depth: int,
    clock: Clock | None,
    new_connection: Callable[[], apsw.Connection],
    *,
    is_remote: bool,
) -> Stores:
    timing: Clock = clock or MachineClock(writer.call_blocking(settle_offset))
    readers = FileReaders(place.path, guard.check_identity) if place else MemoryReaders(writer)
    wakeups = FileWakeups(place.wakeups, database=place.path, is_remote=is_remote) if place else LocalWakeups()
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
