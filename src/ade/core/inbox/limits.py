"""How much an inbox holds. The soft limit makes old items give way to new ones, the hard limit refuses."""

import math

from msgspec import Struct

DEFAULT_MAX_ITEMS = 100
HARD_FACTOR = 3  # the hard limit is so many times the soft one unless it is given
MOST_ITEMS = 1_000_000_000


class InboxLimits(Struct, frozen=True, kw_only=True):
    max_items: int = DEFAULT_MAX_ITEMS
    hard_max_items: int = DEFAULT_MAX_ITEMS * HARD_FACTOR


def inbox_limits(max_items: float | None = None, hard_max_items: float | None = None) -> InboxLimits:
    """Limits that make sense, whatever is given: what is no number, or less than 1, is taken as not given.

    Fractions are cut off, and the hard limit is never below the soft one.
    """
    soft = _whole(max_items, DEFAULT_MAX_ITEMS)
    return InboxLimits(max_items=soft, hard_max_items=max(soft, _whole(hard_max_items, soft * HARD_FACTOR)))


def _whole(number: float | None, default: int) -> int:
    if not isinstance(number, int | float) or math.isnan(number) or number < 1:
        return default
    return math.floor(min(number, MOST_ITEMS))
