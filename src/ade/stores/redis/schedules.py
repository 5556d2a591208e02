"""ScheduleStore on Redis, all in the first partition."""

import msgspec

from ade.events.model import Event
from ade.stores.redis.client.client import RedisClient, Timing
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import as_text, packed_event
from ade.tasks.model import Schedule

_json = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(Schedule).decode


class RedisSchedules:
    def __init__(self, link: RedisClient, timing: Timing) -> None:
        self._link = link
        self._timing = timing
        self._key = f"{link.names[0].prefix}schedules"

    async def put(self, schedule: Schedule, event: Event | None = None) -> None:
        await self._write(schedule.name, schedule, seen=None, event=event)

    async def list_schedules(self) -> list[Schedule]:
        [texts] = await self._link.ask(0, ("HVALS", self._key))
        return sorted(map(_read, texts), key=lambda schedule: schedule.name)

    async def due_schedules(self, now: int) -> list[Schedule]:
        texts = await self._link.run("due_schedules", 0, {**self._timing(), "moment": now})
        return [_read(text) for text in texts]

    async def advance_schedule(self, seen: Schedule, after: Schedule, event: Event | None = None) -> bool:
        while True:
            [text] = await self._link.ask(0, ("HGET", self._key, seen.name))
            if text is None or _turn_of(_read(text)) != _turn_of(seen):
                return False
            if await self._write(seen.name, after, seen=text, event=event):
                return True

    async def remove(self, name: str, event: Event | None = None) -> bool:
        return await self._write(name, None, seen=None, event=event)

    async def _write(
        self, name: str, schedule: Schedule | None, *, seen: bytes | None, event: Event | None = None
    ) -> bool:
        request = {
            "name": name,
            "seen": False if seen is None else as_text(seen),
            "text": False if schedule is None else as_text(_json(schedule)),
            "due": False if schedule is None or schedule.paused else schedule.next_at,
            "event": event is not None and packed_event(event),
            "token": new_token(),
        }
        return bool(await self._link.run("put_schedule", 0, {**self._timing(), **request}))


def _turn_of(schedule: Schedule) -> tuple[int, bool, int]:
    """What somebody changes who moves a schedule on, pauses or edits it."""
    return schedule.next_at, schedule.paused, schedule.updated_at
