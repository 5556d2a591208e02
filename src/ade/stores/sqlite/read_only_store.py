"""A read-only store: one read-only connection, used in the thread of the caller, without an event loop.

Its methods never suspend, so a single `send` runs its coroutines. Short commands use it, because importing asyncio and
the modules that write takes longer than the read itself.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ade.errors import StoreError, StoreReadOnly
from ade.stores import later
from ade.stores.ports import Stores
from ade.stores.resource_ports import InboxStore
from ade.stores.sqlite.agents import SqliteAgents
from ade.stores.sqlite.blobs import SqliteBlobs, at_once
from ade.stores.sqlite.connection import MachineClock, cached_offset, connect_reader, translated
from ade.stores.sqlite.documents import SqliteDocuments
from ade.stores.sqlite.effects import SqliteEffects, SqliteOutputs
from ade.stores.sqlite.event_log import SqliteEvents
from ade.stores.sqlite.file_identity import check_other_processes
from ade.stores.sqlite.files import place_of
from ade.stores.sqlite.locks import SqliteLocks
from ade.stores.sqlite.queues import SqliteQueues, SqliteSchedules
from ade.stores.sqlite.schema import check_schema
from ade.stores.sqlite.task_reader import SqliteTaskReader
from ade.stores.sqlite.workers import SqliteWorkers

Result = TypeVar("Result")


class _InlineReader:
    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    async def call(self, function: Callable[[apsw.Connection], Result]) -> Result:
        try:
            with self._connection:  # one snapshot for all statements of the read
                answer: Any = function(self._connection)
        except apsw.Error as error:
            raise translated(error, str(self._path)) from error
        result: Result = answer
        return result

    scan = call


class _MissingPart:
    """Placeholder for a part that writes: every use raises StoreReadOnly."""

    def __getattr__(self, name: str) -> Any:
        raise StoreReadOnly(f"this store was opened read-only; {name} needs a writable one")


class _TasksToLook(SqliteTaskReader, _MissingPart):
    """The read methods of the task store; its write methods raise StoreReadOnly."""


def open_read_only_store(url: str, blob_dir: Path | None = None) -> Stores | None:
    """Open a store read-only. None if it must first be opened in full, as after a reboot.

    Raises StoreTooOld, StoreTooNew, StoreForeign, StoreReplaced.
    """
    place = place_of(url)
    if place is None:
        return None
    check_other_processes(place)
    try:
        connection = connect_reader(place.path)
    except StoreError:  # opening it in full raises the proper error
        return None
    try:
        offset = cached_offset(connection) if check_schema(connection) else None
    except apsw.Error:
        offset = None
    except StoreError:
        connection.close()
        raise
    if offset is None:
        connection.close()
        return None
    return _assemble(connection, place.path, blob_dir or place.blobs, MachineClock(offset))


def _assemble(connection: apsw.Connection, path: Path, blobs: Path, clock: MachineClock) -> Stores:
    readers: Any = _InlineReader(connection, path)
    absent: Any = _MissingPart()
    tasks: Any = _TasksToLook(readers)

    def inboxes() -> InboxStore:
        from ade.stores.sqlite.inboxes import SqliteInboxes

        return SqliteInboxes(absent, readers, clock, absent, absent)

    async def close() -> None:
        connection.close()

    return Stores(
        tasks=tasks,
        sweeps=absent,
        workers=SqliteWorkers(absent, readers, clock, absent),
        queues=SqliteQueues(absent, readers),
        events=SqliteEvents(absent, readers),
        effects=SqliteEffects(absent, readers, clock),
        outputs=SqliteOutputs(absent, readers),
        schedules=SqliteSchedules(absent, readers),
        blobs=SqliteBlobs(blobs, at_once),
        locks=SqliteLocks(absent, readers, clock, absent),
        agents=SqliteAgents(absent, readers, clock, absent, absent),
        documents=SqliteDocuments(absent, readers, clock, absent),
        inboxes=later(inboxes),
        maintenance=absent,
        wakeups=absent,
        clock=clock,
        closer=close,
    )
