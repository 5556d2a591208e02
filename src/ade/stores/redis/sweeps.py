"""SweepStore on Redis: what the periodic sweep of tasks reads and deletes. Jobs have leases: one process does each."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ade.errors import StoreUnavailable
from ade.stores.ports import DueTasks
from ade.stores.redis.blobs import OrphanBlobs, RedisBlobs
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import EXPIRES, Record, as_text, pairs, raw_records, task_of
from ade.stores.redis.cross_partition import CrossPartitionDependencies
from ade.stores.redis.partitions import Partitions, ReachablePartitions
from ade.tasks.model import Task

# Maintenance jobs: one process at a time performs each.


_kept = msgspec.msgpack.Decoder(list[Any]).decode  # holder, expiry, duration


async def claim_job(link: RedisClient, duty: str, holder: str, ttl_ms: int, *, patience_s: float | None = None) -> bool:
    """Acquire or renew a maintenance job for the next `ttl_ms`; return whether `holder` has it."""
    request = {"job": duty, "holder": holder, "ttl_ms": ttl_ms}
    return bool(await link.run("claim_job", 0, request, patience_s=patience_s))


async def claimed_jobs(link: RedisClient) -> dict[str, int]:
    """Return when each job expires, by the steady clock."""
    [flat] = await link.ask(0, ("HGETALL", f"{link.names[0].prefix}duty"))
    return {name.decode(): int(_kept(packed)[1]) for name, packed in sorted(pairs(flat))}


_PORTION = 500


class RedisSweeps:
    """SweepStore: due tasks, leases on jobs, expired results, and the deletion of old tasks and orphaned blobs."""

    def __init__(self, link: RedisClient, places: Partitions, blobs: RedisBlobs) -> None:
        self._link = link
        self._places = places
        self._blobs = blobs
        self._crossing = CrossPartitionDependencies(link, places)
        self._reach = ReachablePartitions(link)
        self._orphans = OrphanBlobs(link, self._crossing)

    async def due(self, limit: int) -> DueTasks:
        with suppress(StoreUnavailable):  # a partition is unreachable; its messages are delivered later
            await self._crossing.sweep()

        async def ask(partition: int, patience_s: float | None) -> list[Any]:
            request = {"limit": limit}
            found: list[Any] = await self._link.run("due_tasks", partition, request, patience_s=patience_s)
            return found

        expired: list[Task] = []
        overdue: list[Task] = []
        broken: list[tuple[Task, tuple[str, ...]]] = []
        handed_in: list[tuple[Task, bytes]] = []
        for late, missed, vain, handed in (await self._reach.each(self._places.all, ask)).values():
            expired += map(task_of, late)
            overdue += map(task_of, missed)
            broken += [(task_of(record), tuple(sorted(on.decode() for on in record[5]))) for record in vain]
            handed_in += [(task_of(record), record[5]) for record in handed]
        expired.sort(key=lambda task: task.lease_until or 0)
        overdue.sort(key=lambda task: task.deadline or 0)
        self._places.remember(expired + overdue)
        return DueTasks(
            expired=expired[:limit], overdue=overdue[:limit], broken=broken[:limit], handed_in=handed_in[:limit]
        )

    async def next_due(self) -> int | None:
        moments = []
        for partition in self._places.all:
            prefix = self._link.names[partition].prefix
            command = ("ZRANGE", f"{prefix}queue:delayed", 0, 0, "WITHSCORES")
            [first] = await self._link.ask(partition, command)
            if first:
                moments.append(int(float(first[1])))
        return min(moments, default=None)

    async def take_duty(self, duty: str, holder: str, ttl_ms: int) -> bool:
        return await claim_job(self._link, duty, holder, ttl_ms)

    async def jobs(self) -> Mapping[str, int]:
        return await claimed_jobs(self._link)

    async def finished_before(self, moment: int, limit: int, *, dead_letters: int | None = None) -> list[Task]:
        letters = moment if dead_letters is None else dead_letters
        found: list[Task] = []
        for partition in self._places.all:
            found += await self._finished(partition, moment, letters, limit)
        found.sort(key=lambda task: task.finished_at or 0)
        self._places.remember(found)
        return found[:limit]

    async def _finished(self, partition: int, moment: int, letters: int, limit: int) -> list[Task]:
        """Read finished tasks from the oldest, skipping dead letters that are kept longer."""
        key = f"{self._link.names[partition].prefix}task:finished"
        found: list[Task] = []
        offset = 0
        while len(found) < limit:
            command = ("ZRANGE", key, "-inf", f"({moment}", "BYSCORE", "LIMIT", offset, _PORTION)
            [members] = await self._link.ask(partition, command)
            records: list[Record] = await raw_records(self._link, partition, [each.decode() for each in members])
            found += [task for task in map(task_of, records) if _may_go(task, letters)]
            if len(members) < _PORTION:
                break
            offset += _PORTION
        return found[:limit]

    async def prune(self, task_ids: Sequence[str]) -> int:
        places = await self._places.of_all(task_ids)
        gone: list[str] = []
        for partition in self._places.all:
            ids = [task_id for task_id in task_ids if places.get(task_id) == partition]
            for first in range(0, len(ids), _PORTION):
                portion = ids[first : first + _PORTION]
                went = await self._link.run("prune_tasks", partition, {"ids": portion, "token": new_token()})
                gone += [task_id.decode() for task_id in went]
        await self._blobs.remove_blobs(gone)
        return len(gone)

    async def expire_results(self, limit: int) -> int:
        count = 0
        for partition in self._places.all:
            count += await self._expire_in(partition, limit - count)
        return count

    async def _expire_in(self, partition: int, limit: int) -> int:
        if limit <= 0:
            return 0
        now = await self._link.time(partition)
        key = f"{self._link.names[partition].prefix}task:results"
        command = ("ZRANGE", key, "-inf", now, "BYSCORE", "LIMIT", 0, limit)
        [members] = await self._link.ask(partition, command)
        records = await raw_records(self._link, partition, [each.decode() for each in members])
        prepared = [(record[0].decode(), _expiry(record), *_without_result(record[3])) for record in records]
        results = [(task_id, expires, as_text(outcome)) for task_id, expires, outcome, _ in prepared]
        if not results:
            return 0
        gone = await self._link.run("expire_results", partition, {"results": results, "token": new_token()})
        went = {task_id.decode() for task_id in gone}
        await self._blobs.remove_refs([ref for task_id, _, _, ref in prepared if ref is not None and task_id in went])
        return len(went)

    async def remove_orphans(self, older_than_ms: int, limit: int) -> int:
        return await self._orphans.remove(older_than_ms, limit)


def _may_go(task: Task, letters: int) -> bool:
    return task.status != "failed" or task.discarded or (task.finished_at or 0) < letters


def _expiry(record: Record) -> int:
    return int(msgspec.msgpack.decode(record[1])[EXPIRES - 1])


def _without_result(outcome: bytes | None) -> tuple[bytes, str | None]:
    """The outcome marked as expired, and the blob of the result, if it had one."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(outcome or b"{}")
    except msgspec.DecodeError:
        fields = {}
    result = fields.pop("result", None)
    fields["result_expired"] = True
    ref = result.get("$blob") if isinstance(result, dict) else None
    return msgspec.json.encode(fields), ref if isinstance(ref, str) else None
