"""DocumentStore on SQLite: guards are checked and documents written in one write transaction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw
from msgspec import Raw

from ade.common.gcra import RateState, available, next_allowed_ms, possible, take
from ade.events.model import Event
from ade.stores.ports import RULES, Clock, Wakeups
from ade.stores.resource_ports import Document, DocumentWrite, stale
from ade.stores.sqlite.codec import packed
from ade.stores.sqlite.connection import RULES_VERSION, run, value
from ade.stores.sqlite.event_log import enter

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import Writer

_RATE_KEPT_MS = 60_000  # after a rate limit is unused again; deleting it late loses nothing and saves writes
_Versions = dict[tuple[str, str], int | None]


class SqliteDocuments:
    """DocumentStore: versioned documents, and rate limits by key."""

    def __init__(self, writer: "Writer", readers: "Readers", clock: Clock, wakeups: Wakeups) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._wakeups = wakeups

    async def fetch(self, kind: str, ids: Sequence[str]) -> list[Document | None]:
        def read(connection: apsw.Connection) -> list[Document | None]:
            rows = run(connection, "documents.get", kind=kind, ids=packed(list(ids)), now=self._clock.now())
            known = {row[0]: _document(kind, row) for row in rows}
            return [known.get(each) for each in ids]

        return await self._readers.call(read)

    async def list_documents(self, kind: str) -> list[Document]:
        now = self._clock.now()
        rows = await self._readers.call(lambda c: run(c, "documents.list", kind=kind, now=now))
        return [_document(kind, row) for row in rows]

    async def write(self, writes: Sequence[DocumentWrite], events: Sequence[Event] = ()) -> None:
        after: _Versions = {}  # written by an earlier attempt whose outcome was unknown
        notifies = not all(write.is_quiet for write in writes)

        def change(connection: apsw.Connection) -> None:
            if after and all(_version(connection, *which) == version for which, version in after.items()):
                return
            after.clear()
            for each in writes:
                after[each.kind, each.id] = _carry_out(connection, each, self._clock.now())
            for event in events:
                enter(connection, event)
            if notifies:
                run(connection, "meta.count", key=RULES_VERSION)

        if writes or events:
            await self._writer.call(change, afterwards=self._notify if notifies else None)

    def _notify(self) -> None:
        self._wakeups.notify(RULES)

    async def take_rate(self, key: str, count: int, period_ms: int, *, times: int = 1) -> int:
        taken: RateState | None = None  # by an earlier attempt whose outcome was unknown

        def change(connection: apsw.Connection) -> int:
            nonlocal taken
            steady = self._clock.steady()
            known = RateState(value(connection, "documents.get_rate", key=key) or 0)
            if known == taken:
                return 0
            state = possible(known, count=count, period_ms=period_ms, now_ms=steady)
            if available(state, count=count, period_ms=period_ms, now_ms=steady) < times:
                return next_allowed_ms(state, count=count, period_ms=period_ms, now_ms=steady, times=times) - steady
            taken = take(state, times, count=count, period_ms=period_ms, now_ms=steady)
            run(connection, "documents.put_rate", key=key, full_at=taken.full_at)
            return 0

        wait_ms: int = await self._writer.call(change)
        return wait_ms

    async def expire_documents(self, limit: int) -> int:
        """Look with a reader first: usually nothing has expired, and then nothing is written."""
        now, since = self._clock.now(), (self._clock.steady() - _RATE_KEPT_MS) * 1000

        def find(connection: apsw.Connection) -> tuple[list[tuple[str, str]], list[str]]:
            ended = run(connection, "documents.list_expired", now=now, limit=limit)
            idle = run(connection, "documents.list_idle_rates", since=since, limit=limit - len(ended))
            return ended, [key for (key,) in idle]

        ended, idle = await self._readers.call(find)

        def change(connection: apsw.Connection) -> int:
            removed = run(connection, "documents.delete_expired", rows=packed(ended), now=now)
            for kind, version in removed:
                run(connection, "documents.mark_version", kind=kind, version=version)
            return len(removed) + len(run(connection, "documents.delete_rates", keys=packed(idle), since=since))

        if not ended and not idle:
            return 0
        count: int = await self._writer.call(change)
        return count


def _carry_out(connection: apsw.Connection, write: DocumentWrite, now: int) -> int | None:
    """Write one document if it has the version that was seen. Returns its new version; None if it was removed."""
    kind, each = write.kind, write.id
    rows = run(connection, "documents.get_version", kind=kind, id=each, now=now)
    version, has_expired = rows[0] if rows else (0, False)
    if write.seen is not None and write.seen != (0 if has_expired else version):
        raise stale(write)
    if write.body is None:
        for (gone,) in run(connection, "documents.remove", kind=kind, id=each):
            run(connection, "documents.mark_version", kind=kind, version=gone)
        return None
    body = bytes(write.body).decode()
    new: int = value(connection, "documents.put", kind=kind, id=each, expires_at=write.expires_at, body=body)
    return new


def _version(connection: apsw.Connection, kind: str, document_id: str) -> int | None:
    version: int | None = value(connection, "documents.get_version", kind=kind, id=document_id, now=0)
    return version


def _document(kind: str, row: tuple[str, int, int | None, str]) -> Document:
    document_id, version, expires_at, body = row
    return Document(kind=kind, id=document_id, body=Raw(body.encode()), version=version, expires_at=expires_at)
