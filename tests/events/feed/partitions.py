"""An event log as several partitions of a cluster make it, in memory."""

from collections.abc import Mapping

from ade.testing import TestClock
from tests.domain import Event


class PartitionedLog:
    """Seqs have gaps, and are not written in their order: below what is promised nothing more comes, above it may.

    As the port says, `read` gives nothing that is not promised; `newest` and `last_seq` do.
    """

    def __init__(self, clock: TestClock) -> None:
        self.written: dict[int, Event] = {}
        self.trimmed: set[int] = set()
        self.promised = 0
        self._clock = clock

    def write(self, seq: int) -> None:
        assert seq > self.promised
        self.written[seq] = Event(type="alert", at=self._clock.now(), seq=seq)

    def promise(self, seq: int) -> None:
        self.promised = max(self.promised, seq)

    def _kept(self) -> list[Event]:
        return [self.written[seq] for seq in sorted(self.written.keys() - self.trimmed)]

    async def read(self, after: int, limit: int, *, task_id: str | None = None) -> list[Event]:
        return [event for event in self._kept() if after < event.seq <= self.promised][:limit]

    async def newest(self, limit: int) -> list[Event]:
        return self._kept()[-limit:]

    async def last_seq(self) -> int:
        return max(self.written, default=0)

    async def cursor(self, name: str) -> int:
        return 0

    async def advance(self, name: str, seq: int) -> None:
        pass

    async def cursors(self) -> Mapping[str, int]:
        return {}

    async def trim(self, before_ms: int, limit: int) -> int:
        old = {event.seq for event in self._kept() if event.at < before_ms}
        self.trimmed |= old
        return len(old)
