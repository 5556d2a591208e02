"""One timer for all runs: a heap of deadlines and a single wake-up, because a timer per task costs too much."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from ade.logs import Log

_WORTH_TIDYING = 1_000
log = Log("ade.worker")


class TimerEntry:
    """A scheduled callback. Without a callback it is cancelled, and removed when the heap is compacted."""

    __slots__ = ("callback", "moment", "order")

    def __init__(self, moment: float, order: int, callback: Callable[[], object]) -> None:
        self.moment = moment
        self.order = order
        self.callback: Callable[[], object] | None = callback

    def take(self) -> Callable[[], object] | None:
        """Return the callback and clear it, so that it runs at most once; None if the entry is cancelled."""
        callback, self.callback = self.callback, None
        return callback

    def __lt__(self, other: "TimerEntry") -> bool:
        return (self.moment, self.order) < (other.moment, other.order)


class SharedTimer:
    """Runs callbacks at their time unless cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[TimerEntry] = []
        self._dead = 0
        self._order = count()
        self._alarm: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def after(self, seconds: float, callback: Callable[[], object]) -> TimerEntry:
        entry = TimerEntry(self._loop.time() + seconds, next(self._order), callback)
        heapq.heappush(self._heap, entry)
        if self._heap[0] is entry:
            self._set_alarm()
        return entry

    def cancel(self, entry: TimerEntry) -> None:
        if entry.take() is None:
            return
        self._dead += 1
        if self._dead > _WORTH_TIDYING and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry.callback is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    def close(self) -> None:
        self._heap.clear()
        self._dead = 0
        if self._alarm is not None:
            self._alarm.cancel()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._heap[0].moment, self._ring) if self._heap else None

    def _ring(self) -> None:
        now = self._loop.time()
        while self._heap and self._heap[0].moment <= now:
            entry = heapq.heappop(self._heap)
            callback = entry.take()
            if callback is None:
                self._dead -= 1
            else:
                try:
                    callback()
                except Exception:  # the other callbacks must still run
                    log.exception("timer.callback_failed")
        self._set_alarm()
