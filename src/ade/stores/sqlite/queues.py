"""QueueStore on SQLite."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import apsw

from ade.events.model import Event
from ade.stores.ports import StatusCount
from ade.stores.sqlite.connection import run, value
from ade.stores.sqlite.event_log import enter
from ade.tasks.lifecycle import Status
from ade.tasks.model import Queue

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import Writer

MOST_COUNTED = 10_000


class SqliteQueues:
    def __init__(self, writer: "Writer", readers: "Readers") -> None:
        self._writer = writer
        self._readers = readers

    async def list_queues(self) -> list[Queue]:
        def read(connection: apsw.Connection) -> list[Queue]:
            return [
                Queue(name=name, paused=bool(paused), max_depth=d) for name, paused, d in run(connection, "queues.list")
            ]

        return await self._readers.call(read)

    async def configure(self, queue: Queue, event: Event | None = None) -> None:
        def write(connection: apsw.Connection) -> None:
            run(connection, "queues.configure", name=queue.name, paused=queue.paused, max_depth=queue.max_depth)
            enter(connection, event)

        await self._writer.call(write)

    async def tallies(self) -> list[StatusCount]:
        def read(connection: apsw.Connection) -> list[StatusCount]:
            return [
                StatusCount(queue, name, Status(status), n)
                for queue, name, status, n in run(connection, "queues.status_counts")
            ]

        return await self._readers.call(read)

    async def oldest_ready(self) -> Mapping[str, int]:
        def read(connection: apsw.Connection) -> dict[str, int]:
            oldest: dict[str, int] = {}
            for queue, since in run(connection, "queues.oldest_ready"):
                if since is not None:
                    oldest[queue] = min(oldest.get(queue, since), since)
            return oldest

        return await self._readers.call(read)

    async def count_delayed(self) -> int:
        return int(await self._readers.call(lambda c: value(c, "claims.count_delayed")))

    async def running_by_key(self, name: str, key: str) -> list[str]:
        def read(connection: apsw.Connection) -> list[str]:
            return [task_id for (task_id,) in run(connection, "claims.list_running_by_key", name=name, key=key)]

        return await self._readers.call(read)

    async def rate_full_at(self, name: str) -> int:
        return int(await self._readers.call(lambda c: value(c, "definitions.get_rate", name=name)) or 0)

    async def ahead_of(self, task_id: str) -> int:
        return int(await self._readers.call(lambda c: value(c, "queues.count_ahead", id=task_id, limit=MOST_COUNTED)))
