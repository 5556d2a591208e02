"""Whose time counts: the server's, unless a clock was given (as tests do)."""

from collections.abc import Callable

from ade.ports import Clock

Timing = Callable[[], dict[str, int]]  # what goes into the request of a script


def timing_of(clock: Clock | None) -> Timing:
    if clock is None:
        return dict  # an empty one: scripts then ask the server
    return lambda: {"now": clock.now(), "steady": clock.steady()}
