"""The rate limiter for HTTP requests, with counters in the store that all servers share.

For high limits, a server reserves several tokens in one write and hands them out itself, so most requests cost no
write. It reserves about as many as were used recently, so few are left over, however many servers there are.

The limit is never exceeded. Reserved tokens expire after the time in which one batch is refilled, and they are reserved
from a limit that is smaller by one batch. That compensates for tokens that are used later than they were reserved.

The caller's own limit is checked before the global one, so a rejected caller does not use up the global limit.
"""

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from ade.accounts.authentication import RateLimitCache
from ade.accounts.model import Rate
from ade.server.rate_limits import WEB_RATES, RateLimitRule, limit_of
from ade.server.routing import TrafficClass
from ade.stores.ports import Stores

_PARTS = 50  # a limit is divided into this many batches
_MOST_KEPT = 10_000
_ALL = "all"


class RateGrant(Struct, frozen=True):
    """The result of `RateLimiter.take`, for `check_rate` and `rate_headers`. No limit: not counted."""

    limit: RateLimitRule | None
    wait_ms: int = 0


class _TokenBucket:
    """Tokens that are reserved but not used yet, and the number of callers waiting for more."""

    __slots__ = ("filling", "lapses_at", "left", "size", "waiting")

    def __init__(self) -> None:
        self.size = self.left = 0
        self.lapses_at = 0
        self.waiting = 0
        self.filling: asyncio.Future[int] | None = None

    def wanted(self, steady: int) -> int:
        """How many tokens to reserve next: as many as were last used, or twice that if they ran out early."""
        used = max(self.size - self.left, 1)
        return 2 * used if steady < self.lapses_at else used


class RateLimiter:
    """For one event loop.

    The global limit is `times` the limit of one caller; 0 means no global limit.
    """

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
        """Count one request of an account, agent, or address. A rejected request is not counted."""
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
        """Return 0, or the milliseconds until a token is available."""
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
            if purse.left:  # concurrent requests might have used all of them
                purse.left -= 1
                return 0

    async def _filled(self, purse: _TokenBucket, limit: RateLimitRule, key: str) -> int:
        """Share one refill among all waiting requests: separate refills would reserve far too many."""
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
        began = self._stores.clock.steady()  # before the write, so that tokens expire early rather than late
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
        if len(self._purses) >= _MOST_KEPT:  # the tokens left in the evicted buckets expire
            for oldest in list(self._purses)[: _MOST_KEPT // 2]:
                del self._purses[oldest]
        purse = self._purses[key] = _TokenBucket()
        return purse


def _heard(filling: "asyncio.Future[int]") -> None:
    """Retrieve the exception, so that asyncio does not report it if no request waits for it."""
    if not filling.cancelled():
        filling.exception()
