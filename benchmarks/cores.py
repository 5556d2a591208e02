"""Who runs on which core: a server has one to itself, so that its figures are those of one core."""

import contextlib
import os
from collections.abc import Collection

from benchmarks.wire import Wire


def server_cores() -> set[int]:
    """The first core that this process may use."""
    return {min(os.sched_getaffinity(0))}


def other_cores() -> set[int]:
    """All others; the same one where there is no other."""
    usable = os.sched_getaffinity(0)
    return usable - server_cores() or usable


def stay_on(cores: Collection[int]) -> None:
    """For this process and what it starts. A machine that does not allow it measures without."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)


def keep_store_off(server: str, cores: Collection[int]) -> None:
    """Keep the store's own server, where there is one, off the core of the server that is measured."""
    if server:
        with Wire(server) as wire, contextlib.suppress(OSError):
            os.sched_setaffinity(int(wire.facts("server")["process_id"]), cores)


def told() -> str:
    """Whether the cores are parted, for the table of configurations."""
    return "a core of its own" if set(server_cores()).isdisjoint(other_cores()) else "the only core, shared with all"
