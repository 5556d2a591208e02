"""How often somebody has asked over HTTP, counted in the store and so for all servers together.

Where much is allowed, a server takes several starts at once and hands them out itself: then most requests cost no
write. It takes about as many as were used lately, so that little is left over, on however many servers there are.

No more than the limit ever gets through. Starts lapse after the time in which one part of the limit comes back, and
they are taken from a limit that is smaller by that part: just what those make up for that are used later than they were
taken.

Of two limits the one of the asker goes first: whoever is refused takes nothing away from all others.
"""

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from ade.accounts.authentication import RateLimitCache
from ade.accounts.model import Rate
from ade.server.rate_limits import WEB_RATES, RateLimitRule, limit_of
from ade.server.routing import TrafficClass
from ade.stores.ports import Stores

_PARTS = 50  # of a limit: one is what may be taken at once
_MOST_KEPT = 10_000
_ALL = "all"


class RateGrant(Struct, frozen=True):
    """For `check_rate` and `rate_headers`. Without a limit: it is not counted."""

    limit: RateLimitRule | None
    wait_ms: int = 0


class _TokenBucket:
    """Starts that were taken and not used yet, and how many wait for more."""

    __slots__ = ("filling", "lapses_at", "left", "size", "waiting")

    def __init__(self) -> None:
        self.size = self.left = 0
        self.lapses_at = 0
        self.waiting = 0
        self.filling: asyncio.Future[int] | None = None

    def wanted(self, steady: int) -> int:
        """How many to take next: those that were used of the last ones, twice as many if these did not last."""
        used = max(self.size - self.left, 1)
        return 2 * used if steady < self.lapses_at else used


class RateLimiter:
    """For one event loop. `times` is how much more all may ask together than one may; 0: as much as they like."""

    def __init__(self, stores: Stores, rates: Mapping[TrafficClass, Rate] = WEB_RATES, *, times: int = 100) -> None:
        self._stores = stores
        self._own = {traffic: limit for traffic in rates if (limit := limit_of(traffic, rates)) is not None}
        self._all = {
            traffic: RateLimitRule(name=traffic, count=limit.count * times, period_ms=limit.period_ms)
            for traffic, limit in self._own.items()
            if times
        }
        self._purses: dict[str, _TokenBucket] = {}
        self._refused = RateLimitCache(stores)

    async def take(self, traffic: TrafficClass, who: str) -> RateGrant:
        """Count one request of an account, an agent or an address. A refused one is not counted."""
        own = self._own.get(traffic)
        if own is None:
            return RateGrant(None)
        wait_ms = await self._asked(own, own.key(who))
        if wait_ms:
            return RateGrant(own, wait_ms)
        together = self._all.get(traffic)
        if together is None:
            return RateGrant(own)
        wait_ms = await self._asked(together, f"{_ALL}:{traffic}")
        return RateGrant(together if wait_ms else own, wait_ms)

    async def _asked(self, limit: RateLimitRule, key: str) -> int:
        wait_ms = self._refused.wait_ms(key)
        if not wait_ms:
            wait_ms = await self._take(limit, key)
            self._refused.note(key, wait_ms)
        return wait_ms

    async def _take(self, limit: RateLimitRule, key: str) -> int:
        """0, or for how many milliseconds there is none."""
        if limit.count < 2 * _PARTS:
            return await self._stores.documents.take_rate(f"web:{key}", limit.count, limit.period_ms)
        purse = self._purses.get(key) or self._new_purse(key)
        if purse.left and self._stores.clock.steady() < purse.lapses_at:
            purse.left -= 1
            return 0
        while True:
            wait_ms = await self._filled(purse, limit, key)
            if wait_ms:
                return wait_ms
            if purse.left:  # others may have been faster
                purse.left -= 1
                return 0

    async def _filled(self, purse: _TokenBucket, limit: RateLimitRule, key: str) -> int:
        """All who wait share what is taken next: each for himself would take far more than is used."""
        purse.waiting += 1
        try:
            if purse.filling is None:
                purse.filling = asyncio.ensure_future(self._fill(purse, limit, key))
                purse.filling.add_done_callback(_heard)
            return await asyncio.shield(purse.filling)
        finally:
            purse.waiting -= 1

    async def _fill(self, purse: _TokenBucket, limit: RateLimitRule, key: str) -> int:
        part = limit.count // _PARTS
        count = limit.count - part
        period_ms = -(-limit.period_ms * count // limit.count)
        began = self._stores.clock.steady()  # before the store takes them: rather too short than too long
        size = min(max(purse.wanted(began), purse.waiting), part)
        take = self._stores.documents.take_rate
        try:
            wait_ms = await take(f"web:{key}", count, period_ms, times=size)
            if wait_ms and size > 1:
                size, wait_ms = 1, await take(f"web:{key}", count, period_ms)
        finally:
            purse.filling = None
        purse.size = purse.left = 0 if wait_ms else size
        purse.lapses_at = began + part * limit.period_ms // limit.count
        return wait_ms

    def _new_purse(self, key: str) -> _TokenBucket:
        if len(self._purses) >= _MOST_KEPT:  # what is left in those lapses
            for oldest in list(self._purses)[: _MOST_KEPT // 2]:
                del self._purses[oldest]
        purse = self._purses[key] = _TokenBucket()
        return purse


def _heard(filling: "asyncio.Future[int]") -> None:
    """Also if nobody waits for it any more."""
    if not filling.cancelled():
        filling.exception()
