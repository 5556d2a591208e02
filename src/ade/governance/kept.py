"""Records kept as documents: read with the version they were seen in, and written only if that still holds."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from ade.core.documents import Document, DocumentWrite
from ade.core.errors import StaleWrite
from ade.ports import Stores

T = TypeVar("T")
R = TypeVar("R", bound=Struct)
TRIES = 10  # whenever one is too late, somebody else has got through


class Kept(Struct, Generic[R], frozen=True):
    """A record, and as what it was found."""

    record: R
    version: int


class Shelf(Generic[R]):
    """All records of one kind. `end` says until when a record is kept; without it: for good."""

    def __init__(self, kind: str, record: type[R], end: Callable[[R], int] | None = None) -> None:
        self.kind = kind
        self._read = msgspec.json.Decoder(record).decode
        self._write = msgspec.json.Encoder(order="deterministic").encode
        self._end = end

    async def get(self, stores: Stores, record_id: str) -> Kept[R] | None:
        [found] = await self.each(stores, [record_id])
        return found

    async def each(self, stores: Stores, record_ids: Sequence[str]) -> list[Kept[R] | None]:
        """In the order asked."""
        found = await stores.documents.fetch(self.kind, record_ids)
        return [None if each is None else self._kept(each) for each in found]

    async def all(self, stores: Stores) -> dict[str, Kept[R]]:
        return {found.id: self._kept(found) for found in await stores.documents.list_documents(self.kind)}

    def put(self, record_id: str, record: R, *, seen: int) -> DocumentWrite:
        """To be written if there is still what was seen; 0: nothing was there."""
        end = None if self._end is None else self._end(record)
        return DocumentWrite(kind=self.kind, id=record_id, body=Raw(self._write(record)), seen=seen, expires_at=end)

    def remove(self, record_id: str) -> DocumentWrite:
        return DocumentWrite(kind=self.kind, id=record_id, seen=None)

    def _kept(self, found: Document) -> Kept[R]:
        return Kept(self._read(found.body), found.version)


async def decided(step: Callable[[], Awaitable[T]]) -> T:
    """Read, decide and write; and all of it again when somebody else was faster. Raises StaleWrite in the end."""
    for _ in range(TRIES - 1):
        with suppress(StaleWrite):
            return await step()
    return await step()
