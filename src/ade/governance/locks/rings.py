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
        """Open rings that were there at the last look too; True if some are seen for the first time, or were opened and
        others may be behind them: look again soon."""
        requests = {
            one.id: one for one in await self._store.find(LockQuery(namespace=self._namespace, limit=MOST_REQUESTS))
        }
        waits = Waits(requests.values())
        suspected, opened = dict[str, frozenset[tuple[str, str]]](), set[str]()
        for scope in scopes:
            ring = waits.ring_of(scope)
            if ring is None or not opened.isdisjoint(edge.scope for edge in ring):  # who was in an opened one has moved
                continue
            seen = frozenset((edge.waiter, edge.blocker) for edge in ring)
            if self._suspected.get(scope) == seen:
                await self._open(ring, cure_of(ring, requests))
                opened.update(edge.scope for edge in ring)
            else:
                suspected[scope] = seen
        self._suspected = suspected
        return bool(suspected or opened)

    async def _open(self, ring: Ring, cure: Cure) -> None:
        scopes = tuple(edge.scope for edge in ring)
        log.warning("lock.deadlock", namespace=self._namespace, scopes=scopes, cure=str(cure))
        await self._store.cure(self._namespace, cure, scopes)
