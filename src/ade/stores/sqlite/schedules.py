"""ScheduleStore on SQLite."""

from typing import TYPE_CHECKING

import apsw
import msgspec

from ade.events.model import Event
from ade.stores.sqlite.codec import packed
from ade.stores.sqlite.connection import run
from ade.stores.sqlite.event_log import enter
from ade.tasks.model import Schedule

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import Writer


class SqliteSchedules:
    def __init__(self, writer: "Writer", readers: "Readers") -> None:
        self._writer = writer
        self._readers = readers

    async def put(self, schedule: Schedule, event: Event | None = None) -> None:
        def write(connection: apsw.Connection) -> None:
            run(connection, "schedules.put", name=schedule.name, **_columns(schedule))
            enter(connection, event)

        await self._writer.call(write)

    async def list_schedules(self) -> list[Schedule]:
        return await self._readers.call(lambda c: _read(run(c, "schedules.list")))

    async def due_schedules(self, now: int) -> list[Schedule]:
        return await self._readers.call(lambda c: _read(run(c, "schedules.list_due", now=now)))

    async def advance_schedule(self, seen: Schedule, after: Schedule, event: Event | None = None) -> bool:
        def write(connection: apsw.Connection) -> bool:
            known = {
                "seen_next_at": seen.next_at,
                "seen_paused": seen.paused,
                "seen_updated_at": seen.updated_at,
            }
            if not run(connection, "schedules.advance", name=seen.name, **known, **_columns(after)):
                return False
            enter(connection, event)
            return True

        moved: bool = await self._writer.call(write)
        return moved

    async def remove(self, name: str, event: Event | None = None) -> bool:
        def write(connection: apsw.Connection) -> bool:
            if not run(connection, "schedules.remove", name=name):
                return False
            enter(connection, event)
            return True

        removed: bool = await self._writer.call(write)
        return removed


def _columns(schedule: Schedule) -> dict[str, object]:
    return {"schedule": packed(schedule), "next_at": schedule.next_at, "paused": schedule.paused}


def _read(rows: list[tuple[str]]) -> list[Schedule]:
    return [msgspec.json.decode(text, type=Schedule) for (text,) in rows]
