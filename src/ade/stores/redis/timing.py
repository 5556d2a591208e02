"""Whose time counts: the server's, unless a clock was given (as tests do)."""

from collections.abc import Callable

from ade.ports import Clock
from ade.stores.redis.link import Link

Timing = Callable[[], dict[str, int]]  # what goes into the request of a script


def timing_of(clock: Clock | None) -> Timing:
    if clock is None:
        return dict  # an empty one: scripts then ask the server
    return lambda: {"now": clock.now(), "steady": clock.steady()}


async def moment_of(link: Link, timing: Timing, partition: int) -> int:
    """What time it is, for commands that are not scripts."""
    given = timing().get("now")
    if given is not None:
        return given
    [(seconds, micros)] = await link.ask(partition, ("TIME",))
    return int(seconds) * 1000 + int(micros) // 1000
