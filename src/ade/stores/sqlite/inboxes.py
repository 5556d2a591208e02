"""InboxStore on SQLite: the version is checked and the change written in one write transaction."""

import heapq
import os
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
from msgspec import structs

from ade.agents.conversations.inbox import (
    Inbox,
    InboxChange,
    InboxSummary,
    events_of,
    outlined,
    stale,
    summary_of,
    unreadable,
    unused,
)
from ade.agents.conversations.model import ItemSource, StoredItem
from ade.stores.ports import INBOX, Clock, Wakeups
from ade.stores.sqlite.codec import packed, unpacked
from ade.stores.sqlite.connection import run, value

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import WriteChecks, Writer

_WRITES_KNOWN = 32  # per inbox: how many other writes can come between a write and its retry
_head = msgspec.json.Decoder(Inbox).decode
_item = msgspec.json.Decoder(StoredItem).decode


class SqliteInboxes:
    """InboxStore: the inboxes of conversations and their items."""

    def __init__(
        self, writer: "Writer", readers: "Readers", clock: Clock, wakeups: Wakeups, guard: "WriteChecks"
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._wakeups = wakeups
        self._guard = guard

    async def load(self, inbox_id: str, *, outline: bool = False) -> Inbox:
        statement = "inboxes.list_seqs" if outline else "inboxes.list_items"

        def read(connection: apsw.Connection) -> tuple[str | None, list[tuple[Any]]]:
            return value(connection, "inboxes.get", id=inbox_id), run(connection, statement, id=inbox_id)

        empty = unused(inbox_id)
        head, items = await self._readers.call(read)
        if head is None:
            return empty
        try:
            if outline:
                return outlined(_head(head), (seq for (seq,) in items))
            return structs.replace(_head(head), items=tuple(_item(text) for (text,) in items))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise unreadable(inbox_id, error) from error

    async def write(self, change: InboxChange[Any], write_id: str | None = None) -> None:
        if not change.is_written:
            return
        if any(item.source is ItemSource.USER for item in change.added):
            self._guard.before_admission()  # items about running work are accepted even if the disk is nearly full
        token = write_id or os.urandom(8).hex()
        await self._writer.call(lambda connection: _write(connection, change, token, self._clock.now()))
        self._wakeups.notify(INBOX)

    async def ready(self, consumers: frozenset[str], limit: int) -> list[str]:
        steady = self._clock.steady()

        def read(connection: apsw.Connection) -> list[list[tuple[int, str]]]:
            return [
                run(connection, "inboxes.list_ready", consumer=each, steady=steady, limit=limit) for each in consumers
            ]

        found = await self._readers.call(read)
        return [inbox_id for _, inbox_id in heapq.nsmallest(limit, (row for rows in found for row in rows))]

    async def list_inboxes(self, after: str, limit: int) -> list[InboxSummary]:
        rows = await self._readers.call(lambda c: run(c, "inboxes.list", after=after, limit=limit))
        return [_summary(*row) for row in rows]

    async def forget_empty(self, before_ms: int, limit: int) -> int:
        """Look with a reader first: usually there is nothing to delete, and then nothing is written."""
        idle = await self._readers.call(lambda c: run(c, "inboxes.list_idle", before=before_ms, limit=limit))
        if not idle:
            return 0
        ids = packed([inbox_id for (inbox_id,) in idle])
        forgotten: int = await self._writer.call(
            lambda c: len(run(c, "inboxes.delete_idle", ids=ids, before=before_ms))
        )
        return forgotten


def _write(connection: apsw.Connection, change: InboxChange[Any], token: str, now: int) -> None:
    before, after = change.before, change.after
    rows = run(connection, "inboxes.get_version", id=after.id)
    version, known = (rows[0][0], unpacked(rows[0][1])) if rows else (0, [])
    if token in known:
        return
    if version != before.version:
        raise stale(change)
    if change.removed:
        run(connection, "inboxes.delete_items", inbox_id=after.id, seqs=packed([item.seq for item in change.removed]))
    for item in change.added:
        run(connection, "inboxes.put_item", inbox_id=after.id, seq=item.seq, item=packed(item))
    run(
        connection,
        "inboxes.put",
        id=after.id,
        version=after.version,
        consumer=after.consumer,
        items=len(after.items),
        since=after.items[0].enqueued_at if after.items else None,
        held_until=None if after.lease is None else after.lease.until,
        written_at=now,
        writes=packed([*known, token][-_WRITES_KNOWN:]),
        head=packed(structs.replace(after, items=())),
    )
    events = events_of(after.id, change.notices, at=now)
    run(connection, "events.insert", rows=packed([(one.type, one.at, None, None, None, one.payload) for one in events]))


def _summary(head: str, items: int, since: int | None, written_at: int) -> InboxSummary:
    try:
        return summary_of(_head(head), items=items, since=since, written_at=written_at)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unreadable("of the list", error) from error
