"""ADE's locks on both stores."""

import importlib.metadata
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from ade import Ade
from benchmarks.contract import AsyncLocks, BlockingLocks, LockConnection, LockContestant, Place

NAME = "repo:app"


class AdeLocks:
    def __init__(self, url_of: Callable[[Place], str], *, blocking: bool = False) -> None:
        self._url_of = url_of
        self._blocking = blocking

    def describe(self, place: Place) -> Mapping[str, str]:
        form = "with" if self._blocking else "async with"
        return {
            "version": importlib.metadata.version("community-ade"),
            "its form": f'`{form} ade.lock("{NAME}", owner=...)`',
            "set for this run": "nothing: a lease of 30 s, renewed while the block lasts; waits for ever",
            "who is next": "first come, first served inside a priority; nobody is overtaken more than 72 times",
            "how a waiter hears of its turn": "it is granted in the store, and the waiter is woken",
            "told besides": "a fencing token, events of every grant and release, rings of waiters opened",
        }

    def locks(self, place: Place) -> LockConnection:
        return self._blocking_locks(place) if self._blocking else self._awaited_locks(place)

    @asynccontextmanager
    async def _awaited_locks(self, place: Place) -> AsyncIterator[AsyncLocks]:
        async with Ade(self._url_of(place)) as app:
            yield AsyncLocks(lambda agent: app.lock(NAME, owner=agent))

    @contextmanager
    def _blocking_locks(self, place: Place) -> Iterator[BlockingLocks]:
        app = Ade(self._url_of(place))
        try:
            yield BlockingLocks(lambda agent: app.lock(NAME, owner=agent))
        finally:
            app.close().wait()


SQLITE: LockContestant = AdeLocks(lambda place: f"sqlite:///{place.folder / 'ade.db'}")
REDIS: LockContestant = AdeLocks(lambda place: place.server)
REDIS_BLOCKING: LockContestant = AdeLocks(lambda place: place.server, blocking=True)
