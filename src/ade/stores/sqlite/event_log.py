"""EventLog on SQLite: events in sequence, and the cursors of their readers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import apsw

from ade.events.model import Event
from ade.stores.sqlite.codec import packed, unpacked
from ade.stores.sqlite.connection import run, value

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import Writer


class SqliteEvents:
    """EventLog: the ordered log of events, with named read cursors."""

    def __init__(self, writer: "Writer", readers: "Readers") -> None:
        self._writer = writer
        self._readers = readers

    async def read(self, after: int, limit: int, *, task_id: str | None = None) -> list[Event]:
        def read(connection: apsw.Connection) -> list[Event]:
            if task_id is None:
                rows = run(connection, "events.read", after=after, limit=limit)
            else:
                rows = run(connection, "events.read_task", after=after, limit=limit, task_id=task_id)
            return [_event(row) for row in rows]

        return await self._readers.call(read)

    async def newest(self, limit: int) -> list[Event]:
        def read(connection: apsw.Connection) -> list[Event]:
            return [_event(row) for row in reversed(run(connection, "events.list_newest", limit=limit))]

        return await self._readers.call(read)

    async def last_seq(self) -> int:
        return int(await self._readers.call(lambda c: value(c, "events.last_seq")))

    async def advance(self, name: str, seq: int) -> None:
        await self._writer.call(lambda c: run(c, "events.advance_cursor", name=name, seq=seq))

    async def cursors(self) -> Mapping[str, int]:
        return await self._readers.call(lambda c: dict(run(c, "events.list_cursors")))

    async def trim(self, before_ms: int, limit: int) -> int:
        """Find the events with a reader, so that the write is short however long the log is."""

        def find(connection: apsw.Connection) -> list[int]:
            boundary = _first_since(connection, before_ms)
            return [
                seq for (seq,) in run(connection, "events.list_old", boundary=boundary, before=before_ms, limit=limit)
            ]

        seqs = await self._readers.call(find)
        if not seqs:
            return 0
        trimmed: int = await self._writer.call(lambda c: len(run(c, "events.trim", seqs=packed(seqs))))
        return trimmed


def _first_since(connection: apsw.Connection, moment: int) -> int:
    """Find the first seq since a moment by binary search: the log is in order of time, unless a clock was set back."""
    low, high = 0, int(value(connection, "events.last_seq")) + 1
    while low < high:
        middle = (low + high) // 2
        rows = run(connection, "events.first_from", seq=middle)
        if rows and rows[0][1] < moment:
            low = int(rows[0][0]) + 1
        else:
            high = middle
    return low


def _event(row: tuple[int, str, int, str | None, str | None, str]) -> Event:
    seq, kind, at, task_id, actor, payload = row
    return Event(seq=seq, type=kind, at=at, task_id=task_id, actor=actor, payload=unpacked(payload))


def enter(connection: apsw.Connection, event: Event | None) -> None:
    """Write an event that does not belong to a task, inside the open transaction."""
    if event is not None:
        row = (event.type, event.at, None, None, event.actor, event.payload)
        run(connection, "events.insert", rows=packed([row]))
