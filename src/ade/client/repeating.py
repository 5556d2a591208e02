"""When to ask again, and after which time. Pure: what has happened comes in, a pause or none comes out."""

from msgspec import Struct

from ade.core.errors import ServerUnreachable
from ade.core.web.problems import Problem
from ade.core.web.routing import Route
from ade.core.web.statuses import Fault

_FIRST_PAUSE_S, _LONGEST_BACKOFF_S = 0.1, 5.0
_SAFE_METHODS = frozenset({"GET", "PUT", "DELETE"})  # twice is as good as once
_UNAVAILABLE = 503


class Patience(Struct, frozen=True, kw_only=True):
    """How often to ask again, and how long to wait for that at most: a server that wants more patience than this is
    told of to the caller."""

    repeats: int = 3
    stream_repeats: int = 10  # in a row, to take a stream up again that had begun
    longest_pause_s: float = 30.0


def is_repeatable(route: Route, *, has_key: bool, has_tag: bool) -> bool:
    """Whether a request whose answer was lost may be sent again. One that names the version it means may not: its own
    first time would have made another version."""
    if has_key or not route.mutates:
        return True
    return route.method in _SAFE_METHODS and not has_tag


def pause_after_break(error: ServerUnreachable, *, times: int, dice: float) -> float | None:
    """A server that was never reached is told of at once: it is rather the address that is wrong. One that was asked
    before, `times` times, and has asked for patience or hung up, is about to start anew."""
    return backoff_s(times, dice) if error.was_sent or times else None


def pause_after_problem(problem: Problem, patience: Patience, *, sent_before: bool) -> float | None:
    """Only what passes by itself within seconds: a rate, a server about to start or stop, one's own first request."""
    is_passing = problem.status == _UNAVAILABLE or problem.code == Fault.TOO_MANY_REQUESTS
    is_own = problem.code == Fault.REQUEST_IN_PROGRESS and sent_before
    if not (is_passing or is_own):
        return None
    pause = _wanted_pause(problem)
    return pause if pause <= patience.longest_pause_s else None


def backoff_s(times: int, dice: float) -> float:
    """After so many breaks in a row; `dice` in [0, 1) spreads those who broke together."""
    plain: float = min(_FIRST_PAUSE_S * 2 ** min(times, 16), _LONGEST_BACKOFF_S)
    return plain * (0.5 + dice)


def _wanted_pause(problem: Problem) -> float:
    told = problem.headers.get("retry-after", "")
    if told.isascii() and told.isdigit():
        return float(told[:9])
    member = problem.more.get("retry_after")
    return float(member) if isinstance(member, int | float) and member >= 0 else 1.0
