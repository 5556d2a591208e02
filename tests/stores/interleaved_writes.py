"""Something that happens between somebody's look at the documents and what he writes then."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from ade.stores.resource_ports import Document, DocumentStore, DocumentWrite
from tests.domain import Event, Stores


class _Meanwhile:
    """The real documents; before the first write, somebody else is faster."""

    def __init__(self, real: DocumentStore, happening: Callable[[], Awaitable[object]]) -> None:
        self._real = real
        self._happening: Callable[[], Awaitable[object]] | None = happening

    async def fetch(self, kind: str, ids: Sequence[str]) -> list[Document | None]:
        return await self._real.fetch(kind, ids)

    async def list_documents(self, kind: str) -> list[Document]:
        return await self._real.list_documents(kind)

    async def write(self, writes: Sequence[DocumentWrite], events: Sequence[Event] = ()) -> None:
        happening, self._happening = self._happening, None
        if happening is not None:
            await happening()
        await self._real.write(writes, events)

    async def take_rate(self, key: str, count: int, period_ms: int, *, times: int = 1) -> int:
        return await self._real.take_rate(key, count, period_ms, times=times)

    async def expire_documents(self, limit: int) -> int:
        return await self._real.expire_documents(limit)


def meanwhile(stores: Stores, happening: Callable[[], Awaitable[object]]) -> Stores:
    """The same stores, for the one who is too slow."""
    return replace(stores, documents=_Meanwhile(stores.documents, happening))
