"""Ctrl-C and its like for a command that has to clear up after itself."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """Ctrl-C, SIGTERM, or the terminal is gone."""


class Interrupts:
    """Heard of as long as the block lasts. They end what is carried out `unless_heard`, and nothing else."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()
        self._caught: list[signal.Signals] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, self._heard.set)
                self._caught.append(number)
        await asyncio.sleep(0)  # one that came just before has cancelled us: let it do so here, not in the block
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in self._caught:
            asyncio.get_running_loop().remove_signal_handler(number)

    async def unless_heard(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work answers. Raises Interrupted, once for all that was heard until now."""
        job, heard = asyncio.create_task(work), asyncio.create_task(self._heard.wait())
        try:
            await asyncio.wait({job, heard}, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            self._heard.clear()
            raise Interrupted
        finally:
            for each in (job, heard):
                each.cancel()
            await asyncio.gather(job, heard, return_exceptions=True)
