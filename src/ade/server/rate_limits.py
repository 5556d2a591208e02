"""Rate limit rules by traffic class, and the RateLimit response headers.

`ade.server.rate_limiter` counts a request, `check_rate` rejects it if needed, and `rate_headers` go into every
response, including rejections. Unauthenticated callers are counted by address. Lock requests are also counted by owner,
in the lock service.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from ade.accounts.model import RATES, Rate, RateClass
from ade.common.rate_limit import read_rate
from ade.server.problems import HttpFault, RequestRefused, retry_after
from ade.server.routing import TrafficClass


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
            raise ValueError(f"{text!r} is no rate")
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
