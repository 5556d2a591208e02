"""Looks for rings of waiters, twice before anything is done about one: a book is read while others write in it."""

from collections.abc import Iterable

from ade.core.locks.deadlocks import Cure, Ring, Waits, cure_of
from ade.logs import Log
from ade.ports import LockQuery, LockStore

MOST_REQUESTS = 10_000  # of a namespace that are looked at
log = Log("ade.locks")


class RingWatch:
    """For one namespace. `look` is called now and then by whoever waits in it."""

    def __init__(self, store: LockStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._suspected: dict[str, frozenset[tuple[str, str]]] = {}  # scope -> the ring it was in at the last look

    async def look(self, scopes: Iterable[str]) -> bool:
        """Open a ring that was there at the last look too; True if one is seen for the first time: look again soon."""
        requests = {
            one.id: one for one in await self._store.find(LockQuery(namespace=self._namespace, limit=MOST_REQUESTS))
        }
        waits = Waits(requests.values())
        suspected, is_news = {}, False
        for scope in scopes:
            ring = waits.ring_of(scope)
            if ring is None:
                continue
            seen = frozenset((edge.waiter, edge.blocker) for edge in ring)
            if self._suspected.get(scope) == seen:
                await self._open(ring, cure_of(ring, requests))
                break  # the book has changed
            suspected[scope] = seen
            is_news = True
        self._suspected = suspected
        return is_news

    async def _open(self, ring: Ring, cure: Cure) -> None:
        scopes = tuple(edge.scope for edge in ring)
        log.warning("lock.deadlock", namespace=self._namespace, scopes=scopes, cure=str(cure))
        await self._store.cure(self._namespace, cure, scopes)
