"""Buffers the output lines of runs and stores them in batches."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from ade.errors import StoreError, StoreUnavailable
from ade.logs import Log
from ade.stores.ports import Clock, OutputStore
from ade.tasks.model import OutputLine

_SOON_S = 0.1
_FULL = 200  # lines that are stored without further delay
_MOST = 10_000  # lines kept while the store is unavailable; more are dropped

_IN_PLACE = "[this line could not be stored]"

log = Log("ade.worker")


class OutputBuffer:
    """The output lines of all runs, in order. They are stored before the outcome of their run at the latest."""

    def __init__(self, store: OutputStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lines: list[OutputLine] = []
        self._flush_soon: asyncio.TimerHandle | None = None
        self._flushing = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._lines)

    async def add(self, task_id: str, run_id: str, attempt: int, text: str, stream: str = "log") -> None:
        if len(self._lines) >= _MOST:
            self.dropped += 1
            return
        at = self._clock.now()
        line = OutputLine(task_id=task_id, run_id=run_id, attempt=attempt, at=at, text=text, stream=stream)
        self._lines.append(line)
        if len(self._lines) >= _FULL:
            await self.flush()
        elif self._flush_soon is None:
            self._flush_soon = asyncio.get_running_loop().call_later(_SOON_S, self._flush_in_background)

    async def flush(self) -> None:
        """Store the buffered lines. They stay buffered if the store is unavailable. Never raises: outcomes follow."""
        async with self._flushing:
            self._forget_timer()
            lines, self._lines = self._lines, []
            if not lines:
                return
            try:
                await self._store.append(lines)
            except StoreError as error:
                if isinstance(error, StoreUnavailable) and error.answers:
                    lines = [line for line, answer in zip(lines, error.answers, strict=True) if answer is not None]
                self._lines = lines + self._lines
                log.warning("output.kept_back", lines=len(self._lines), error=str(error))
            except Exception:  # one line cannot be stored: the others can
                log.exception("output.impossible", lines=len(lines))
                await self._store_each(lines)

    async def _store_each(self, lines: Sequence[OutputLine]) -> None:
        for line in lines:
            for candidate in (line, structs.replace(line, text=_IN_PLACE)):
                try:
                    await self._store.append([candidate])
                    break
                except Exception as error:
                    log.warning("output.line_dropped", task_id=line.task_id, error=str(error))
            else:
                self.dropped += 1

    def _flush_in_background(self) -> None:
        self._flush_soon = None
        job = asyncio.get_running_loop().create_task(self.flush())
        self._background.add(job)
        job.add_done_callback(self._background.discard)

    def _forget_timer(self) -> None:
        if self._flush_soon is not None:
            self._flush_soon.cancel()
            self._flush_soon = None
