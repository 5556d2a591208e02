"""For tests about rules that change: idle time without waiting for it, subscriptions, and how long a change takes."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from ade.composition.app_store import OpenStore
from tests.domain import RULES, Stores
from tests.waiting import eventually, watching

PROMISED_S = 1.0  # until a changed rule takes effect everywhere


@contextmanager
def after_idle_time(opened: OpenStore, seconds: float = 2) -> Iterator[None]:
    """As if the app had not been used for so long. It does not add up, or the rules would be read for their age."""
    idle(opened, seconds=seconds)
    try:
        yield
    finally:
        idle(opened, seconds=-seconds)


def idle(opened: OpenStore, *, seconds: float) -> None:
    """What all loops know of the rules gets older."""
    for side in opened._sides.values():
        for cache in (side.rules, side.runtime):
            cache._read_at -= seconds
            cache._current_at -= seconds


async def subscribed(stores: Stores) -> None:
    """Until changed rules are heard of; the first look subscribes."""

    async def look() -> bool:
        return stores.wakeups.lag_s(RULES) < PROMISED_S / 2

    await eventually(look)


async def takes_effect(change: Awaitable[object], is_seen: Callable[[], Awaitable[bool]]) -> float:
    """For how long after its commit a change is not seen, without the time for which the machine stood still."""
    async with watching() as watch:
        await change
        committed_at, lost_s = time.monotonic(), watch.lost_s
        await eventually(is_seen)
        return time.monotonic() - committed_at - (watch.lost_s - lost_s)
