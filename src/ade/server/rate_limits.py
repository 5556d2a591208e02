"""Rate limits of HTTP requests: the rules by traffic class, the limiter, and the RateLimit response headers.

The counters are in the store, and all servers share them. For high limits, a server reserves several tokens in one
write and hands them out itself, so most requests cost no write. It reserves about as many as were used recently, so
few are left over, however many servers there are.

The limit is never exceeded. Reserved tokens expire after the time in which one batch is refilled, and they are reserved
from a limit that is smaller by one batch. That compensates for tokens that are used later than they were reserved.

`RateLimiter.take` counts a request, `check_rate` rejects it if needed, and `rate_headers` go into every response,
including rejections. Unauthenticated callers are counted by address. Lock requests are also counted by owner, in the
lock service. The caller's own limit is checked before the global one, so a rejected caller does not use up the global
limit.
"""

import asyncio
from collections.abc import Mapping

from msgspec import Struct, structs

from ade.accounts.authentication import RateLimitCache
from ade.accounts.authorization import RATES, Rate, RateClass
from ade.common.gcra import read_rate
from ade.server.operation import TrafficClass
from ade.server.problems import HttpFault, RequestRefused, retry_after
from ade.stores.ports import Stores


class RateLimitRule(Struct, frozen=True, kw_only=True):
    """The rate limit of a traffic class: `count` requests in `period_ms`."""

    name: TrafficClass
    count: int
    period_ms: int

    def key(self, account: str) -> str:
        return f"{self.name}:{account}"


WEB_RATES: Mapping[TrafficClass, Rate] = {
    **{TrafficClass(asking): RATES[asking] for asking in RateClass if asking is not RateClass.CONFIRM},
    TrafficClass.WORK: (60_000, 60_000),
    TrafficClass.LOCK: (1_200, 60_000),
    TrafficClass.STREAM: (60, 60_000),
}


def limit_of(traffic: TrafficClass, rates: Mapping[TrafficClass, Rate] = WEB_RATES) -> RateLimitRule | None:
    """Return the limit of a traffic class, or None if it is not limited."""
    rate = rates.get(traffic)
    return None if rate is None else RateLimitRule(name=traffic, count=rate[0], period_ms=rate[1])


def read_rates(texts: Mapping[str, str]) -> Mapping[TrafficClass, Rate]:
    """Parse the rates in the settings. `none` and missing classes are not limited. Raises ValueError."""
    rates: dict[TrafficClass, Rate] = {}
    for name, text in texts.items():
        rate = read_rate(text)
        if rate is not None:
            rates[TrafficClass(name)] = rate
        elif text != "none":
            raise ValueError(f"{text!r} is not a rate")
    return rates


def check_rate(limit: RateLimitRule, wait_ms: int) -> None:
    """Raise RequestRefused (429) if the limiter returned a waiting time."""
    if wait_ms > 0:
        seconds = wait_ms / 1000
        refused = RequestRefused(
            HttpFault.TOO_MANY_REQUESTS,
            f"at most {limit.count} requests in {limit.period_ms / 1000:g} s ({limit.name}); try again in"
            f" {seconds:.1f} s",
            retry_after=seconds,
            limit=limit.name,
        )
        headers = {**refused.problem.headers, **rate_headers(limit, wait_ms)}
        refused.problem = structs.replace(refused.problem, headers=headers)
        raise refused


def rate_headers(limit: RateLimitRule, wait_ms: int, remaining: int | None = None) -> dict[str, str]:
    """Return RateLimit-Policy, and RateLimit if the remainder is known, as after a rejection: 0."""
    headers = {"RateLimit-Policy": f'"{limit.name}";q={limit.count};w={max(1, -(-limit.period_ms // 1000))}'}
    if wait_ms > 0:
        seconds = retry_after(wait_ms / 1000)
        headers |= {"RateLimit": f'"{limit.name}";r=0;t={seconds}', "Retry-After": seconds}
    elif remaining is not None:
        headers["RateLimit"] = f'"{limit.name}";r={min(max(remaining, 0), limit.count)}'
    return headers


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
        self._buckets: dict[str, _TokenBucket] = {}
        self._refused = RateLimitCache(stores)

    async def take(self, traffic: TrafficClass, who: str) -> RateGrant:
        """Count one request of an account, agent, or address. A rejected request is not counted."""
        own = self._own.get(traffic)
        if own is None:
            return RateGrant(None)
        wait_ms = await self._take_cached(own, own.key(who))
        if wait_ms:
            return RateGrant(own, wait_ms)
        together = self._all.get(traffic)
        if together is None:
            return RateGrant(own)
        wait_ms = await self._take_cached(together, f"{_ALL}:{traffic}")
        return RateGrant(together if wait_ms else own, wait_ms)

    async def _take_cached(self, limit: RateLimitRule, key: str) -> int:
        wait_ms = self._refused.wait_ms(key)
        if not wait_ms:
            wait_ms = await self._take(limit, key)
            self._refused.note(key, wait_ms)
        return wait_ms

    async def _take(self, limit: RateLimitRule, key: str) -> int:
        """Return 0, or the milliseconds until a token is available."""
        if limit.count < 2 * _PARTS:
            return await self._stores.documents.take_rate(f"web:{key}", limit.count, limit.period_ms)
        bucket = self._buckets.get(key) or self._new_bucket(key)
        if bucket.left and self._stores.clock.steady() < bucket.lapses_at:
            bucket.left -= 1
            return 0
        while True:
            wait_ms = await self._filled(bucket, limit, key)
            if wait_ms:
                return wait_ms
            if bucket.left:  # concurrent requests might have used all of them
                bucket.left -= 1
                return 0

    async def _filled(self, bucket: _TokenBucket, limit: RateLimitRule, key: str) -> int:
        """Share one refill among all waiting requests: separate refills would reserve far too many."""
        bucket.waiting += 1
        try:
            if bucket.filling is None:
                bucket.filling = asyncio.ensure_future(self._fill(bucket, limit, key))
                bucket.filling.add_done_callback(_retrieve_exception)
            return await asyncio.shield(bucket.filling)
        finally:
            bucket.waiting -= 1

    async def _fill(self, bucket: _TokenBucket, limit: RateLimitRule, key: str) -> int:
        part = limit.count // _PARTS
        count = limit.count - part
        period_ms = -(-limit.period_ms * count // limit.count)
        began = self._stores.clock.steady()  # before the write, so that tokens expire early rather than late
        size = min(max(bucket.wanted(began), bucket.waiting), part)
        take = self._stores.documents.take_rate
        try:
            wait_ms = await take(f"web:{key}", count, period_ms, times=size)
            if wait_ms and size > 1:
                size, wait_ms = 1, await take(f"web:{key}", count, period_ms)
        finally:
            bucket.filling = None
        bucket.size = bucket.left = 0 if wait_ms else size
        bucket.lapses_at = began + part * limit.period_ms // limit.count
        return wait_ms

    def _new_bucket(self, key: str) -> _TokenBucket:
        if len(self._buckets) >= _MOST_KEPT:  # the tokens left in the evicted buckets expire
            for oldest in list(self._buckets)[: _MOST_KEPT // 2]:
                del self._buckets[oldest]
        bucket = self._buckets[key] = _TokenBucket()
        return bucket


def _retrieve_exception(filling: "asyncio.Future[int]") -> None:
    """Retrieve the exception, so that asyncio does not report it if no request waits for it."""
    if not filling.cancelled():
        filling.exception()
