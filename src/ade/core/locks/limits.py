"""How much one may ask for: waiters of a resource, requests of an owner, and how often it may ask."""

from dataclasses import dataclass

from ade.core.errors import LockRateLimited, TooManyLocks
from ade.core.rate import RateState, next_allowed_ms, possible, take


@dataclass(frozen=True, slots=True)
class LockLimits:
    """An owner may ask `acquires` times in `acquires_per_ms` milliseconds; None: as often as it likes."""

    waiters_per_resource: int = 1_000
    requests_per_owner: int = 1_000
    acquires: int | None = None
    acquires_per_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Crowd:
    """What there is already: how many in the longest of the lines and of this owner, and how far its rate is used up.

    `full_at` is the moment, in microseconds of steady time, at which all of the rate is free again.
    """

    waiting: int = 0
    of_owner: int = 0
    full_at: int = 0


def rate_after(crowd: Crowd, limits: LockLimits, owner: str, steady_ms: int) -> int | None:
    """`full_at` when the owner has asked once more; None where nothing is limited. Raises LockRateLimited."""
    if limits.acquires is None or limits.acquires_per_ms is None:
        return None
    rate = {"count": limits.acquires, "period_ms": limits.acquires_per_ms, "now_ms": steady_ms}
    state = possible(RateState(crowd.full_at), **rate)
    allowed_at = next_allowed_ms(state, **rate)
    if allowed_at > steady_ms:
        raise asks_too_often(owner, allowed_at - steady_ms)
    return take(state, 1, **rate).full_at


def asks_too_often(owner: str, retry_after_ms: int) -> LockRateLimited:
    return LockRateLimited(
        f"{owner} asks for locks more often than it may; try again after {retry_after_ms} ms",
        retry_after_ms=retry_after_ms,
    )


def has_too_many(owner: str, count: int) -> TooManyLocks:
    return TooManyLocks(f"{owner} has {count} locks already, as many as it may have")


def too_many_wait(resources: tuple[str, ...], count: int) -> TooManyLocks:
    return TooManyLocks(f"{count} requests wait for {', '.join(resources)} already; try again later")
