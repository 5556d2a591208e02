"""Typed records stored as documents: a repository with optimistic concurrency, and a cache for one event loop."""

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
        return [None if each is None else self._kept(each) for each in found]

    async def all(self, stores: Stores) -> dict[str, StoredRecord[R]]:
        return {found.id: self._kept(found) for found in await stores.documents.list_documents(self.kind)}

    def put(self, record_id: str, record: R, *, seen: int) -> DocumentWrite:
        """Return a write that succeeds only if the stored version is still `seen`; 0 means no record."""
        end = None if self._end is None else self._end(record)
        return DocumentWrite(kind=self.kind, id=record_id, body=Raw(self._write(record)), seen=seen, expires_at=end)

    def remove(self, record_id: str) -> DocumentWrite:
        return DocumentWrite(kind=self.kind, id=record_id, seen=None)

    def _kept(self, found: Document) -> StoredRecord[R]:
        return StoredRecord(self._read(found.body), found.version)


async def decided(step: Callable[[], Awaitable[T]]) -> T:
    """Run a read-decide-write step, and retry it on StaleWrite. Raises StaleWrite after TRIES attempts."""
    for _ in range(TRIES - 1):
        with suppress(StaleWrite):
            return await step()
    return await step()


class SingleFlight:
    """A lock for shared reads. When the store fails the lock holder, all current waiters get the same error.

    Otherwise each waiter would wait in turn for the store to time out.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0
        self._again: Callable[[], StoreError] = StoreError

    async def __aenter__(self) -> None:
        """Acquire the lock. Raises StoreError if the store failed another holder while waiting."""
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


_OLDEST_S = 0.9  # a changed rule takes effect everywhere within 1 s, which includes the read
_CHECK_AFTER_S = 0.6  # asking for changes is cheap, so it happens early enough for an enqueue to end within the second
_REREAD_AFTER_S = 30.0  # a safety net for documents that were changed without ADE


class CachedDocument(Generic[T]):
    """Caches a value while the store can tell without a read whether rules have changed.

    The value is read again after a change and after 30 seconds. While changes might be missed (before the subscription
    works, after its connection broke, or on a network file system), it is read again after one second.
    `load` receives the previous value, so that it can return the same object if nothing has changed.
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
        self._generation = -1  # notification counter at the time of the read
        self._was_subscribed = False
        self._read_at = 0.0
        self._current_at = 0.0  # the last moment at which the value is known to have been current
        self._reading = SingleFlight()

    async def current(self) -> T:
        """Return the value, at most one second old and newer than any notification.

        Raises StoreUnavailable instead of returning a stale value.
        """
        known = self.fresh()
        if known is not None:
            return known
        async with self._reading:
            known = self.fresh()
            return await self._read() if known is None else known

    def fresh(self) -> T | None:
        """The same as `current` without waiting, for any thread; None if the value must be read."""
        now, wakeups = self._clock(), self._stores.wakeups
        if now - self._current_at >= _CHECK_AFTER_S:
            if not self._was_subscribed or now - self._read_at >= _REREAD_AFTER_S:
                return None
            lag_s = wakeups.lag_s(RULES)
            if lag_s >= _OLDEST_S:
                return None
            self._current_at = now - lag_s
        generation, known = self._generation, self._known  # `_read` writes them in the opposite order
        return known if wakeups.generation(RULES) == generation else None

    def peek(self) -> T | None:
        """Return the last value, however old, for any thread; None before the first `current`."""
        return self._known

    async def _read(self) -> T:
        # Taken before the read, so that a change during the read causes another one.
        wakeups = self._stores.wakeups
        is_subscribed, generation, at = wakeups.lag_s(RULES) < _OLDEST_S, wakeups.generation(RULES), self._clock()
        known = self._known = await self._load(self._stores, self._known)
        self._was_subscribed, self._read_at, self._current_at = is_subscribed, at, at
        self._generation = generation
        return known
