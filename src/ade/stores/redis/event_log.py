"""The event log on Redis: one stream per partition, read as one log.

The seq of an event is the tick at which its partition wrote it. Ticks are unique across partitions. Before a reader
gets events of several partitions, each partition has reserved a tick: it writes nothing below the newest of them.
"""

from collections.abc import Mapping

from ade.events.model import Event
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.codec import logged_in, pairs, read_events
from ade.stores.redis.partitions import Partitions

_PORTION = 500
_FIRST_PORTION = 4  # one entry holds all events of a call, often as many as the reader wants


class RedisEvents:
    """The event log: reads, reader cursors, and trimming."""

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places

    async def read(self, after: int, limit: int, *, task_id: str | None = None) -> list[Event]:
        if task_id is not None:
            return (await self._of_task(task_id, after))[:limit]
        if self._link.partitions == 1:
            return await self._of_partition(0, after, limit)
        horizon = await self._horizon()
        events: list[Event] = []
        for partition in self._places.all:
            events += await self._of_partition(partition, after, limit)
        events.sort(key=lambda event: event.seq)
        return [event for event in events if event.seq <= horizon][:limit]

    async def _horizon(self) -> int:
        """The seq up to which all logs are complete: every partition has promised to write only higher ones."""
        promised = {partition: await self._promise(partition) for partition in self._places.all}
        newest = max(tick for tick, _ in promised.values())
        if any(is_far_ahead for _, is_far_ahead in promised.values()):  # waiting for the slowest clock would take long
            promised = {partition: await self._promise(partition, at_least=newest) for partition in self._places.all}
        return min(tick for tick, _ in promised.values())

    async def _promise(self, partition: int, at_least: int = 0) -> tuple[int, bool]:
        tick, is_far_ahead = await self._link.run("reserve_tick", partition, {"at_least": str(at_least)})
        return int(tick), bool(is_far_ahead)

    async def _of_partition(self, partition: int, after: int, limit: int) -> list[Event]:
        events: list[Event] = []
        key = self._key(partition, "events")
        start = f"({await self._entry_before(key, partition, after)}" if after else "-"
        portion = _FIRST_PORTION
        while len(events) < limit:
            [entries] = await self._link.ask(partition, ("XRANGE", key, start, "+", "COUNT", portion))
            for entry_id, fields in entries:
                events += [event for event in self._events(entry_id, fields) if event.seq > after]
                if len(events) >= limit:
                    return events[:limit]
            if len(entries) < portion:
                break
            start = f"({entries[-1][0].decode()}"
            portion = min(2 * portion, _PORTION)
        return events

    async def _entry_before(self, key: str, partition: int, after: int) -> str:
        """The ID before the entry that contains `after`, because that entry can contain later events."""
        [entries] = await self._link.ask(partition, ("XREVRANGE", key, f"{after}-0", "-", "COUNT", 1))
        return f"{int(entries[0][0].split(b'-')[0]) - 1}-0" if entries else f"{after}-0"

    async def _of_task(self, task_id: str, after: int) -> list[Event]:
        partition = await self._places.of(task_id)
        [state] = await self._link.ask(partition, ("HGET", self._key(partition, f"task:{task_id}"), "state"))
        if state is None:
            return []
        by_partition: dict[int, list[int]] = {}
        for tick in logged_in(state):  # the partition follows from the tick
            by_partition.setdefault(tick % self._link.partitions, []).append(tick)
        events: list[Event] = []
        for place, ticks in by_partition.items():
            key = self._key(place, "events")
            found = await self._link.ask(place, *(("XRANGE", key, f"{tick}-0", f"{tick}-0") for tick in ticks))
            events += [event for entries in found for entry in entries for event in self._events(*entry)]
        events.sort(key=lambda event: event.seq)
        return [event for event in events if event.task_id == task_id and event.seq > after]

    def _events(self, entry_id: bytes, fields: list[bytes]) -> list[Event]:
        return read_events(fields[1], int(entry_id.split(b"-")[0]), self._link.partitions)

    async def newest(self, limit: int) -> list[Event]:
        events: list[Event] = []
        for partition in self._places.all:
            events += await self._newest_of(partition, limit)
        events.sort(key=lambda event: event.seq)
        return events[-limit:]

    async def _newest_of(self, partition: int, limit: int) -> list[Event]:
        events: list[Event] = []
        end, portion = "+", min(limit, _FIRST_PORTION)
        while len(events) < limit:
            command = ("XREVRANGE", self._key(partition, "events"), end, "-", "COUNT", portion)
            [entries] = await self._link.ask(partition, command)
            for entry_id, fields in entries:
                events += self._events(entry_id, fields)
            if len(entries) < portion:
                break
            end = f"({entries[-1][0].decode()}"
            portion = min(2 * portion, _PORTION)
        return events

    async def last_seq(self) -> int:
        newest = 0
        for partition in self._places.all:
            [entries, tick] = await self._link.ask(
                partition,
                ("XREVRANGE", self._key(partition, "events"), "+", "-", "COUNT", 1),
                ("HGET", self._key(partition, "meta"), "last_event"),
            )
            seqs = [event.seq for entry in entries for event in self._events(*entry)]
            newest = max([newest, int(tick or 0), *seqs])
        return newest

    async def advance(self, name: str, seq: int) -> None:
        await self._link.run("advance_cursor", 0, {"name": name, "seq": seq})

    async def cursors(self) -> Mapping[str, int]:
        [flat] = await self._link.ask(0, ("HGETALL", self._key(0, "cursors")))
        return {name.decode(): int(seq) for name, seq in sorted(pairs(flat))}

    async def trim(self, before_ms: int, limit: int) -> int:
        """Remove entries whose events are all old, read by every cursor, and about tasks that no longer exist."""
        seen = min((await self.cursors()).values(), default=1 << 62)
        return await self._link.reach.in_turn(
            self._places.all,
            lambda partition, left, patience_s: self._trim(partition, before_ms, seen, left, patience_s),
            limit,
        )

    async def _trim(self, partition: int, before_ms: int, seen: int, limit: int, patience_s: float | None) -> int:
        key, start, trimmed = self._key(partition, "events"), "-", 0
        portion = _FIRST_PORTION  # usually the first entries are young, so no more are read
        while trimmed < limit:
            command = ("XRANGE", key, start, f"{seen}-0", "COUNT", portion)
            [entries] = await self._link.ask(partition, command, patience_s=patience_s)
            logged = ((entry_id, self._events(entry_id, fields)) for entry_id, fields in entries)
            old = [each for each in logged if all(event.seq <= seen and event.at < before_ms for event in each[1])]
            doomed, count = await self._doomed(partition, old, limit - trimmed)
            if doomed:
                await self._link.run("trim_events", partition, {"entries": doomed})
                trimmed += count
            if not old or len(entries) < portion:  # the log is ordered by time, so later entries are young too
                break
            start = f"({entries[-1][0].decode()}"
            portion = min(2 * portion, _PORTION)
        return trimmed

    async def _doomed(
        self, partition: int, entries: list[tuple[bytes, list[Event]]], room: int
    ) -> tuple[list[str], int]:
        """The entries whose tasks no longer exist, and their number of events."""
        ids = sorted({event.task_id for _, events in entries for event in events if event.task_id is not None})
        if not entries:
            return [], 0
        there = await self._link.ask(partition, *(("EXISTS", self._key(partition, f"task:{each}")) for each in ids))
        living = {task_id for task_id, is_there in zip(ids, there, strict=True) if is_there}
        if self._link.partitions > 1:  # an edited draft can move to another partition
            living |= (await self._places.of_existing([task_id for task_id in ids if task_id not in living])).keys()
        doomed: list[str] = []
        count = 0
        for entry_id, events in entries:
            if count < room and living.isdisjoint(event.task_id for event in events):
                doomed.append(entry_id.decode())
                count += len(events)
        return doomed, count

    def _key(self, partition: int, name: str) -> str:
        return self._link.names[partition].prefix + name
