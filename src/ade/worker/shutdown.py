"""Stopping: claim no more, let what runs come to its end, hand back what does not, and say what was handed back."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ade.logs import Log
from ade.worker.options import WorkerOptions
from ade.worker.run import Stop
from ade.worker.runs import Runs

_COMMIT_PATIENCE_S = 10.0  # for the last commits, should the store be away
log = Log("ade.worker")


class StopSignals:
    """`stop` is set by the first signal, `hurry` by the second."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def ask(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """React to SIGTERM and SIGINT while inside."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


class Handover(Struct, frozen=True, kw_only=True):
    """What became of the work a stopping worker held."""

    handed_back: tuple[str, ...] = ()  # task ids: unfinished, at no cost to them
    left_behind: tuple[str, ...] = ()  # task ids: the store could not be told; their leases will run out


async def drain(runs: Runs, options: WorkerOptions, hurry: asyncio.Event) -> None:
    """Nothing is held any more when this returns, or the store could not be reached."""
    if runs.held:
        log.info("worker.draining", running=len(runs.held), grace_s=options.grace_s)
    await _emptied(runs, options.grace_s, hurry)
    runs.stop_all(Stop.SHUTDOWN)
    await _emptied(runs, options.cancel_grace_s, hurry)
    runs.detach_all()
    await _emptied(runs, _COMMIT_PATIENCE_S, None)


async def _emptied(runs: Runs, seconds: float, hurry: asyncio.Event | None) -> None:
    """Wait until nothing is held, for so long, or until there is a hurry."""
    if not runs.held:
        return
    waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(runs.emptied())]
    if hurry is not None:
        waiting.append(asyncio.ensure_future(hurry.wait()))
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for job in waiting:
        job.cancel()
