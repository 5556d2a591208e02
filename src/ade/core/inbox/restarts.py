"""How often what fails may be tried again: so many times in a window, and so many in a row; then it rests.

A flat cap would end a conversation for good after enough bad days; a window lets it go on as soon as that is over.
"""

from msgspec import Struct

from ade.core.retry import Backoff


class RestartLimits(Struct, frozen=True, kw_only=True):
    most: int = 10  # failures in any window
    window_ms: int = 60_000
    most_in_a_row: int = 5  # then it rests for a whole window before each further try
    pause: Backoff = Backoff(base_ms=500, cap_ms=15_000)  # after each failure, before a limit is reached


class Restarts(Struct, frozen=True, kw_only=True):
    """What is known of the failures of one conversation; times are milliseconds of one steady clock."""

    failed_at: tuple[int, ...] = ()  # the newest, oldest first; no more than the window can hold
    in_a_row: int = 0


FRESH = Restarts()


def failed(restarts: Restarts, limits: RestartLimits, now: int) -> Restarts:
    return Restarts(failed_at=(*restarts.failed_at, now)[-limits.most :], in_a_row=restarts.in_a_row + 1)


def succeeded(restarts: Restarts) -> Restarts:
    """A row ends with each success; the window does not, or every second try could fail for ever."""
    return Restarts(failed_at=restarts.failed_at)


def inherited(restarts: Restarts, returns: int, limits: RestartLimits, now: int) -> Restarts:
    """What failed elsewhere counts too once that was a row: perhaps it ends whoever takes it.

    `returns` is the stored count, `Inbox.returns`. When the last of them was is not known, so it counts from now.
    """
    if returns < limits.most_in_a_row or restarts.in_a_row >= limits.most_in_a_row:
        return restarts
    return Restarts(failed_at=(*restarts.failed_at, now)[-limits.most :], in_a_row=returns)


def next_try(restarts: Restarts, limits: RestartLimits, dice: float = 0.5) -> int:
    """The moment from which it may be tried; it lies in the past when there is nothing to wait for."""
    if not restarts.failed_at:
        return 0
    plain = restarts.failed_at[-1] + (limits.pause.delay_ms(restarts.in_a_row, dice) if restarts.in_a_row else 0)
    return max(plain, _rest_until(restarts, limits))


def is_resting(restarts: Restarts, limits: RestartLimits, now: int) -> bool:
    """Whether a limit is reached, and not just the pause after a failure."""
    return _rest_until(restarts, limits) > now


def is_forgotten(restarts: Restarts, limits: RestartLimits, now: int) -> bool:
    """Whether nothing of it counts any more, so that nobody needs to keep it."""
    return restarts.in_a_row == 0 and all(moment + limits.window_ms <= now for moment in restarts.failed_at)


def _rest_until(restarts: Restarts, limits: RestartLimits) -> int:
    """0 when no limit is reached."""
    times, until = restarts.failed_at, 0
    if times and restarts.in_a_row >= limits.most_in_a_row:
        until = times[-1] + limits.window_ms
    if len(times) >= limits.most:
        until = max(until, times[-limits.most] + limits.window_ms)
    return until
