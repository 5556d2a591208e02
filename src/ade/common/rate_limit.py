"""Rate limits by GCRA: one stored number per name, no window edges, no counters to leak.

After a rest up to `count` starts may come at once; from then on one every `period / count`.
"""

import re

from msgspec import Struct

_RATE = re.compile(r"([1-9]\d{0,8})\s*/\s*(\d{0,6})\s*([smhd])")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class RateState(Struct, frozen=True):
    """`full_at` is the theoretical arrival time in microseconds: the moment the bucket is empty of debt."""

    full_at: int


def _interval_us(count: int, period_ms: int) -> int:
    """Microseconds per start, rounded up: rather a little slower than one start too many."""
    return -(-period_ms * 1000 // count)


def read_rate(text: str) -> tuple[int, int] | None:
    """ "100/m" as (100, 60000): starts and the milliseconds they may take place in; None if it is no rate."""
    match = _RATE.fullmatch(text.strip())
    period_ms = int(match[2] or 1) * _UNITS_MS[match[3]] if match else 0
    return (int(match[1]), period_ms) if match and period_ms else None


def possible(state: RateState, *, count: int, period_ms: int, now_ms: int) -> RateState:
    """The state, unless it is from before the clock was put back: nothing can be used up further than a whole period.

    Such a state has room for one start, which brings it back into what is possible: nobody has to wait for the clock.
    """
    interval = _interval_us(count, period_ms)
    latest = now_ms * 1000 + count * interval
    return state if state.full_at <= latest else RateState(latest - interval)


def available(state: RateState, *, count: int, period_ms: int, now_ms: int) -> int:
    """How many starts are allowed right now, at most `count`."""
    interval = _interval_us(count, period_ms)
    debt = max(state.full_at - now_ms * 1000, 0)
    return max((count * interval - debt) // interval, 0)


def take(state: RateState, taken: int, *, count: int, period_ms: int, now_ms: int) -> RateState:
    """The state after `taken` starts."""
    return RateState(max(state.full_at, now_ms * 1000) + taken * _interval_us(count, period_ms))


def next_allowed_ms(state: RateState, *, count: int, period_ms: int, now_ms: int, times: int = 1) -> int:
    """When the next start is allowed, or so many at once: now, or later."""
    earliest = state.full_at - (count - times) * _interval_us(count, period_ms)
    return max(-(-earliest // 1000), now_ms)
