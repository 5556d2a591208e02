"""Rate limits by GCRA: one stored number per name, no window edges, no counters to leak.

After a rest up to `count` starts may come at once; from then on one every `period / count`.
"""

from msgspec import Struct


class RateState(Struct, frozen=True):
    """`full_at` is the theoretical arrival time in microseconds: the moment the bucket is empty of debt."""

    full_at: int


def _interval_us(count: int, period_ms: int) -> int:
    """Microseconds per start, rounded up: rather a little slower than one start too many."""
    return -(-period_ms * 1000 // count)


def available(state: RateState, *, count: int, period_ms: int, now_ms: int) -> int:
    """How many starts are allowed right now, at most `count`."""
    interval = _interval_us(count, period_ms)
    debt = max(state.full_at - now_ms * 1000, 0)
    return max((count * interval - debt) // interval, 0)


def take(state: RateState, taken: int, *, count: int, period_ms: int, now_ms: int) -> RateState:
    """The state after `taken` starts."""
    return RateState(max(state.full_at, now_ms * 1000) + taken * _interval_us(count, period_ms))


def next_allowed_ms(state: RateState, *, count: int, period_ms: int, now_ms: int) -> int:
    """When the next start is allowed: now, or later."""
    earliest = state.full_at - (count - 1) * _interval_us(count, period_ms)
    return max(-(-earliest // 1000), now_ms)
