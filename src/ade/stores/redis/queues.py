"""Queue and schedule stores on Redis.

The settings of a queue are in every partition, because claims read them there. Schedules are in the first partition.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ade.events.model import Event
from ade.stores.ports import StatusCount
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import as_text, packed_event
from ade.stores.redis.partitions import Partitions
from ade.tasks.lifecycle import Status
from ade.tasks.model import Queue, Schedule

MOST_COUNTED = 10_000
_packed = msgspec.msgpack.Encoder().encode
_settings = msgspec.msgpack.Decoder(tuple[bool, int | bool]).decode


class RedisQueues:
    """Queue settings, task counts, and facts for `explain`."""

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places

    async def list_queues(self) -> list[Queue]:
        found: dict[str, Queue] = {}
        for partition in self._places.all:
            configured, counted = await self._link.run("read_counters", partition, {})
            for lane, _ in _pairs(counted):
                queue = lane.partition(":")[0]
                found.setdefault(queue, Queue(name=queue))
            for queue, settings in _pairs(configured):
                if queue not in found or self._places.of_queue(queue) == partition:  # the settings that its claims use
                    paused, depth = _settings(settings)
                    found[queue] = Queue(name=queue, paused=paused, max_depth=None if depth is False else depth)
        return [found[name] for name in sorted(found)]

    async def configure(self, queue: Queue, event: Event | None = None) -> None:
        settings = _packed((queue.paused, False if queue.max_depth is None else queue.max_depth))
        for partition in self._places.all:
            is_last = partition == self._places.all[-1]
            packed = event is not None and is_last and packed_event(event)
            request = {"queue": queue.name, "settings": as_text(settings), "notifies": is_last}
            request |= {"event": packed, "token": new_token()}
            await self._link.run("configure_queue", partition, request)

    async def tallies(self) -> list[StatusCount]:
        counts: Counter[tuple[str, str, str]] = Counter()
        for partition in self._places.all:
            _, counted = await self._link.run("read_counters", partition, {})
            for lane, count in _pairs(counted):
                queue, _, rest = lane.partition(":")
                name, _, status = rest.rpartition(":")  # only a task name can contain a colon
                counts[queue, name, status] += int(count)
        return [StatusCount(*lane[:2], Status(lane[2]), count) for lane, count in sorted(counts.items()) if count]

    async def oldest_ready(self) -> Mapping[str, int]:
        oldest: dict[str, int] = {}
        for partition in self._places.all:
            for queue, moment in _pairs(await self._link.run("oldest_ready", partition, {})):
                since = int(moment)
                oldest[queue] = min(oldest.get(queue, since), since)
        return oldest

    async def count_delayed(self) -> int:
        count = 0
        for partition in self._places.all:
            [delayed] = await self._link.ask(partition, ("ZCARD", f"{self._link.names[partition].prefix}queue:delayed"))
            count += int(delayed)
        return count

    async def running_by_key(self, name: str, key: str) -> list[str]:
        running: list[tuple[int, str]] = []
        for partition in self._places.all:
            found = await self._link.run("running_by_key", partition, {"name": name, "key": key})
            running += [(int(seq), task_id.decode()) for seq, task_id in found]
        return [task_id for _, task_id in sorted(running)]

    async def rate_full_at(self, name: str) -> int:
        async def ask(partition: int, patience_s: float | None) -> int:
            command = ("HGET", f"{self._link.names[partition].prefix}rates", name)
            [full_at] = await self._link.ask(partition, command, patience_s=patience_s)
            return int(full_at or 0)

        return max((await self._link.reach.each(self._places.all, ask)).values())

    async def ahead_of(self, task_id: str) -> int:
        partition = await self._places.of(task_id)
        request = {"id": task_id, "limit": MOST_COUNTED}
        return int(await self._link.run("count_ahead", partition, request))


def _pairs(flat: Sequence[bytes]) -> list[tuple[str, bytes]]:
    """Fields and values of a hash, as scripts return them."""
    return [(field.decode(), value) for field, value in zip(flat[::2], flat[1::2], strict=True)]


_json = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(Schedule).decode


class RedisSchedules:
    """Cron schedules."""

    def __init__(self, link: RedisClient) -> None:
        self._link = link
        self._key = f"{link.names[0].prefix}schedules"

    async def put(self, schedule: Schedule, event: Event | None = None, *, seen: Schedule | None = None) -> bool:
        if seen is None:
            return await self._write(schedule.name, schedule, seen=None, event=event)
        while True:
            [text] = await self._link.ask(0, ("HGET", self._key, seen.name))
            if text is None or _turn_of(_read(text)) != _turn_of(seen):
                return False
            if await self._write(seen.name, schedule, seen=text, event=event):
                return True

    async def list_schedules(self, due_by: int | None = None) -> list[Schedule]:
        if due_by is None:
            [texts] = await self._link.ask(0, ("HVALS", self._key))
            return sorted(map(_read, texts), key=lambda schedule: schedule.name)
        due = await self._link.run("due_schedules", 0, {"moment": due_by})
        return [_read(text) for text in due]

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
        return bool(await self._link.run("put_schedule", 0, request))


def _turn_of(schedule: Schedule) -> tuple[int, bool, int]:
    """The fields that change whenever a schedule fires, is paused, or is edited."""
    return schedule.next_at, schedule.paused, schedule.updated_at
