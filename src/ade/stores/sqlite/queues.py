"""QueueStore and ScheduleStore on SQLite."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import apsw
import msgspec

from ade.events.model import Event
from ade.stores.ports import StatusCount
from ade.stores.sqlite.codec import packed
from ade.stores.sqlite.connection import run, value
from ade.stores.sqlite.event_log import enter
from ade.tasks.lifecycle import Status
from ade.tasks.model import Queue, Schedule

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import Writer


MOST_COUNTED = 10_000


class SqliteQueues:
    """QueueStore: queues, and counts and positions of their tasks."""

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


class SqliteSchedules:
    """ScheduleStore: cron schedules and their next firing."""

    def __init__(self, writer: "Writer", readers: "Readers") -> None:
        self._writer = writer
        self._readers = readers

    async def put(self, schedule: Schedule, event: Event | None = None, *, seen: Schedule | None = None) -> bool:
        def write(connection: apsw.Connection) -> bool:
            if seen is None:
                run(connection, "schedules.put", name=schedule.name, **_columns(schedule))
            elif not run(connection, "schedules.advance", name=seen.name, **_guard(seen), **_columns(schedule)):
                return False
            enter(connection, event)
            return True

        is_written: bool = await self._writer.call(write)
        return is_written

    async def list_schedules(self, due_by: int | None = None) -> list[Schedule]:
        if due_by is None:
            return await self._readers.call(lambda c: _read(run(c, "schedules.list")))
        return await self._readers.call(lambda c: _read(run(c, "schedules.list_due", now=due_by)))

    async def remove(self, name: str, event: Event | None = None) -> bool:
        def write(connection: apsw.Connection) -> bool:
            if not run(connection, "schedules.remove", name=name):
                return False
            enter(connection, event)
            return True

        removed: bool = await self._writer.call(write)
        return removed


def _guard(seen: Schedule) -> dict[str, object]:
    return {"seen_next_at": seen.next_at, "seen_paused": seen.paused, "seen_updated_at": seen.updated_at}


def _columns(schedule: Schedule) -> dict[str, object]:
    return {"schedule": packed(schedule), "next_at": schedule.next_at, "paused": schedule.paused}


def _read(rows: list[tuple[str]]) -> list[Schedule]:
    return [msgspec.json.decode(text, type=Schedule) for (text,) in rows]
