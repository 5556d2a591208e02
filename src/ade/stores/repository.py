"""Typed records stored as documents, with optimistic concurrency."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from ade.errors import StaleWrite
from ade.stores.ports import Stores
from ade.stores.resource_ports import Document, DocumentWrite

T = TypeVar("T")
R = TypeVar("R", bound=Struct)
TRIES = 10  # each conflict means that another writer succeeded


class StoredRecord(Struct, Generic[R], frozen=True):
    """A record and the version in which it was read."""

    record: R
    version: int


class Repository(Generic[R]):
    """The records of one kind. `end` returns when a record expires; without it, records do not expire."""

    def __init__(self, kind: str, record: type[R], end: Callable[[R], int] | None = None) -> None:
        self.kind = kind
        self._read = msgspec.json.Decoder(record).decode
        self._write = msgspec.json.Encoder(order="deterministic").encode
        self._end = end

    async def get(self, stores: Stores, record_id: str) -> StoredRecord[R] | None:
        [found] = await self.each(stores, [record_id])
        return found

    async def each(self, stores: Stores, record_ids: Sequence[str]) -> list[StoredRecord[R] | None]:
        """Return the records in the given order; None for those that do not exist."""
        found = await stores.documents.fetch(self.kind, record_ids)
        return [None if each is None else self._stored(each) for each in found]

    async def all(self, stores: Stores) -> dict[str, StoredRecord[R]]:
        return {found.id: self._stored(found) for found in await stores.documents.list_documents(self.kind)}

    def put(self, record_id: str, record: R, *, seen: int) -> DocumentWrite:
        """Return a write that succeeds only if the stored version is still `seen`; 0 means no record."""
        end = None if self._end is None else self._end(record)
        return DocumentWrite(kind=self.kind, id=record_id, body=Raw(self._write(record)), seen=seen, expires_at=end)

    def remove(self, record_id: str) -> DocumentWrite:
        return DocumentWrite(kind=self.kind, id=record_id, seen=None)

    def _stored(self, found: Document) -> StoredRecord[R]:
        return StoredRecord(self._read(found.body), found.version)


async def decided(step: Callable[[], Awaitable[T]]) -> T:
    """Run a read-decide-write step, and retry it on StaleWrite. Raises StaleWrite after TRIES attempts."""
    for _ in range(TRIES - 1):
        with suppress(StaleWrite):
            return await step()
    return await step()
