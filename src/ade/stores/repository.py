"""The newest of something that is kept in documents, for callers on one event loop that ask often."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from ade.errors import StaleWrite, StoreError
from ade.stores.ports import RULES, Stores
from ade.stores.resource_ports import Document, DocumentWrite

# Records kept as documents: read with the version they were seen in, and written only if that still holds.


T = TypeVar("T")
R = TypeVar("R", bound=Struct)
TRIES = 10  # whenever one is too late, somebody else has got through


class StoredRecord(Struct, Generic[R], frozen=True):
    """A record, and as what it was found."""

    record: R
    version: int


class Repository(Generic[R]):
    """All records of one kind. `end` says until when a record is kept; without it: for good."""

    def __init__(self, kind: str, record: type[R], end: Callable[[R], int] | None = None) -> None:
        self.kind = kind
        self._read = msgspec.json.Decoder(record).decode
        self._write = msgspec.json.Encoder(order="deterministic").encode
        self._end = end

    async def get(self, stores: Stores, record_id: str) -> StoredRecord[R] | None:
        [found] = await self.each(stores, [record_id])
        return found

    async def each(self, stores: Stores, record_ids: Sequence[str]) -> list[StoredRecord[R] | None]:
        """In the order asked."""
        found = await stores.documents.fetch(self.kind, record_ids)
        return [None if each is None else self._kept(each) for each in found]

    async def all(self, stores: Stores) -> dict[str, StoredRecord[R]]:
        return {found.id: self._kept(found) for found in await stores.documents.list_documents(self.kind)}

    def put(self, record_id: str, record: R, *, seen: int) -> DocumentWrite:
        """To be written if there is still what was seen; 0: nothing was there."""
        end = None if self._end is None else self._end(record)
        return DocumentWrite(kind=self.kind, id=record_id, body=Raw(self._write(record)), seen=seen, expires_at=end)

    def remove(self, record_id: str) -> DocumentWrite:
        return DocumentWrite(kind=self.kind, id=record_id, seen=None)

    def _kept(self, found: Document) -> StoredRecord[R]:
        return StoredRecord(self._read(found.body), found.version)


async def decided(step: Callable[[], Awaitable[T]]) -> T:
    """Read, decide and write; and all of it again when somebody else was faster. Raises StaleWrite in the end."""
    for _ in range(TRIES - 1):
        with suppress(StaleWrite):
            return await step()
    return await step()


# Taking turns to read what is then remembered for all.


class SingleFlight:
    """A lock. When the store fails whoever has it, all who waited meanwhile are told the same: each by himself would
    wait as long for the store as the one before him, and the last of them for ever."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0
        self._again: Callable[[], StoreError] = StoreError

    async def __aenter__(self) -> None:
        """Raises StoreError."""
        seen = self._failures
        await self._lock.acquire()
        if self._failures != seen:
            self._lock.release()
            raise self._again()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StoreError):
            self._failures += 1
            self._again = partial(type(error), error.detail)
        self._lock.release()


_OLDEST_S = 0.9  # a changed rule takes effect everywhere within a second, and the read itself takes some of it
_REREAD_AFTER_S = 30.0  # a safety net: notifications arrive, but a process may be killed before it sends one


class CachedDocument(Generic[T]):
    """Answer from memory while the store is known to notify this process of changed rules.

    It is read again after a notification and after 30 seconds. While notifications may be lost (before the
    subscription works, after its connection broke, where the store has none) it is read again after one second.
    `load` receives what was known before, so that it can return the same object if nothing is new.
    """

    def __init__(
        self,
        stores: Stores,
        load: Callable[[Stores, T | None], Awaitable[T]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._load = load
        self._clock = clock
        self._known: T | None = None
        self._generation = -1  # of the notifications, when it was read
        self._was_subscribed = False
        self._read_at = 0.0
        self._current_at = 0.0  # the last moment at which it is known to have been the newest
        self._reading = SingleFlight()

    async def current(self) -> T:
        """Not older than a second, and newer than any notification. Raises StoreUnavailable rather than answer from
        memory."""
        known = self.fresh()
        if known is not None:
            return known
        async with self._reading:
            known = self.fresh()
            return await self._read() if known is None else known

    def fresh(self) -> T | None:
        """The same without waiting, for any thread; None where it would have to be read."""
        now, wakeups = self._clock(), self._stores.wakeups
        if now - self._current_at >= _OLDEST_S:
            if not self._was_subscribed or now - self._read_at >= _REREAD_AFTER_S:
                return None
            lag_s = wakeups.lag_s(RULES)
            if lag_s >= _OLDEST_S:
                return None
            self._current_at = now - lag_s
        generation, known = self._generation, self._known  # in this order, because they are written in the other
        return known if wakeups.generation(RULES) == generation else None

    def peek(self) -> T | None:
        """What was known last, however old, for any thread; None before the first `current`."""
        return self._known

    async def _read(self) -> T:
        # All are taken before the store answers: what changes meanwhile is read again.
        wakeups = self._stores.wakeups
        is_subscribed, generation, at = wakeups.lag_s(RULES) < _OLDEST_S, wakeups.generation(RULES), self._clock()
        known = self._known = await self._load(self._stores, self._known)
        self._was_subscribed, self._read_at, self._current_at = is_subscribed, at, at
        self._generation = generation
        return known
