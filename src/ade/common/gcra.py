"""Rate limits by GCRA: one stored number per name, no window edges, and no counters that leak.

After an idle period, up to `count` starts can happen in a burst, then one every `period / count`.
"""

import re

from msgspec import Struct

_RATE = re.compile(r"([1-9]\d{0,8})\s*/\s*(\d{0,6})\s*([smhd])")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class RateState(Struct, frozen=True):
    """`full_at` is the theoretical arrival time (TAT) in microseconds: when the full burst is available again."""

    full_at: int


def _interval_us(count: int, period_ms: int) -> int:
    """Microseconds per start, rounded up, so that the limit is never exceeded."""
    return -(-period_ms * 1000 // count)


def read_rate(text: str) -> tuple[int, int] | None:
    """ "100/m" as (100, 60000): starts and their period in milliseconds; None for an invalid rate."""
    match = _RATE.fullmatch(text.strip())
    period_ms = int(match[2] or 1) * _UNITS_MS[match[3]] if match else 0
    return (int(match[1]), period_ms) if match and period_ms else None


def possible(state: RateState, *, count: int, period_ms: int, now_ms: int) -> RateState:
    """Return the state, corrected if it dates from before the clock was set back.

    No state can be more than a whole period ahead. The corrected state allows one start, so no caller waits for the
    clock.
    """
    interval = _interval_us(count, period_ms)
    latest = now_ms * 1000 + count * interval
    return state if state.full_at <= latest else RateState(latest - interval)


def available(state: RateState, *, count: int, period_ms: int, now_ms: int) -> int:
    """Return how many starts are allowed now, up to `count`."""
    interval = _interval_us(count, period_ms)
    debt = max(state.full_at - now_ms * 1000, 0)
    return max((count * interval - debt) // interval, 0)


def take(state: RateState, taken: int, *, count: int, period_ms: int, now_ms: int) -> RateState:
    """Return the state after `taken` starts."""
    return RateState(max(state.full_at, now_ms * 1000) + taken * _interval_us(count, period_ms))


def next_allowed_ms(state: RateState, *, count: int, period_ms: int, now_ms: int, times: int = 1) -> int:
    """Return when the next `times` starts are allowed together: now or later."""
    earliest = state.full_at - (count - times) * _interval_us(count, period_ms)
    return max(-(-earliest // 1000), now_ms)
