"""SweepStore on Redis: what the periodic sweep of tasks reads and deletes. Jobs have leases: one process does each."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ade.errors import StoreCorrupt, StoreUnavailable
from ade.stores.ports import DueTasks
from ade.stores.redis.blobs import OrphanBlobs, RedisBlobs, is_ref_of
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.topology import SHORT_PATIENCE_S
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import EXPIRES, Record, as_text, pairs, raw_records, task_of
from ade.stores.redis.cross_partition import CrossPartitionDependencies
from ade.stores.redis.key_types import mend_wrong_keys
from ade.stores.redis.partitions import Partitions, partition_of_key
from ade.tasks.model import Task, is_past_retention

# Maintenance jobs: one process at a time performs each.


_kept = msgspec.msgpack.Decoder(list[Any]).decode  # holder, expiry, duration


async def claim_job(
    link: RedisClient, duty: str, holder: str, ttl_ms: int, *, partition: int = 0, patience_s: float | None = None
) -> bool:
    """Acquire or renew a maintenance job for the next `ttl_ms`; return whether `holder` has it."""
    request = {"job": duty, "holder": holder, "ttl_ms": ttl_ms}
    return bool(await link.run("claim_job", partition, request, patience_s=patience_s))


async def claim_job_anywhere(link: RedisClient, duty: str, holder: str, ttl_ms: int) -> bool:
    """The same in the partition of the job, or in the next one that responds.

    Processes that do not reach the same partitions can perform a job concurrently; every job allows that.
    """
    first = partition_of_key(duty, link.partitions)
    places = [(first + step) % link.partitions for step in range(link.partitions)]
    near = link.reach.near(places) or places
    for place in near[:-1]:
        try:
            return await claim_job(link, duty, holder, ttl_ms, partition=place, patience_s=SHORT_PATIENCE_S)
        except StoreUnavailable as error:
            link.reach.note(place, error)
    return await claim_job(link, duty, holder, ttl_ms, partition=near[-1])


async def claimed_jobs(link: RedisClient) -> dict[str, int]:
    """Return when each job expires, by the steady clock."""

    async def ask(partition: int, patience_s: float | None) -> Any:
        command = ("HGETALL", f"{link.names[partition].prefix}duty")
        return (await link.ask(partition, command, patience_s=patience_s))[0]

    found: dict[str, int] = {}
    for flat in (await link.reach.each(range(link.partitions), ask)).values():
        for name, packed in pairs(flat):
            found[name.decode()] = max(int(_kept(packed)[1]), found.get(name.decode(), 0))
    return dict(sorted(found.items()))


_PORTION = 500
_RENEWAL_S = 5.0  # after an outage, workers have renewed by then: they try every quarter of a heartbeat
_MOST_REMEMBERED = 200_000


class RedisSweeps:
    """SweepStore: due tasks, leases on jobs, expired results, and the deletion of old tasks and orphaned blobs."""

    def __init__(self, link: RedisClient, places: Partitions, blobs: RedisBlobs) -> None:
        self._link = link
        self._places = places
        self._blobs = blobs
        self._crossing = CrossPartitionDependencies(link, places)
        self._reach = link.reach
        self._orphans = OrphanBlobs(link, self._crossing)
        self._governed: dict[str, int] = {}  # governed tasks that an earlier sweep has read -> their end time

    async def due(self, limit: int) -> DueTasks:
        with suppress(StoreUnavailable):  # a partition is unreachable; its messages are delivered later
            await self._crossing.sweep()

        async def ask(partition: int, patience_s: float | None) -> list[Any]:
            request = {"limit": limit, "clock": self._link.verified(partition)}
            found: list[Any] = await self._link.run("due_tasks", partition, request, patience_s=patience_s)
            return found

        expired: list[Task] = []
        overdue: list[Task] = []
        broken: list[tuple[Task, tuple[str, ...]]] = []
        handed_in: list[tuple[Task, bytes]] = []
        for partition, answer in (await self._reach.each(self._places.all, ask)).items():
            late, missed, vain, handed, is_trusted = answer
            if self._reach.is_back_since(partition) < _RENEWAL_S:
                late = []  # live workers renew first
            if not is_trusted:  # the server shows another time than expected
                self._link.measure_soon(partition)
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
        async def ask(partition: int, patience_s: float | None) -> Any:
            command = ("ZRANGE", f"{self._link.names[partition].prefix}queue:delayed", 0, 0, "WITHSCORES")
            return (await self._link.ask(partition, command, patience_s=patience_s))[0]

        found = (await self._reach.each(self._places.all, ask)).values()
        return min((int(float(first[1])) for first in found if first), default=None)

    async def take_duty(self, duty: str, holder: str, ttl_ms: int) -> bool:
        try:
            return await claim_job_anywhere(self._link, duty, holder, ttl_ms)
        except StoreCorrupt:  # no job could repair it, because none could be claimed
            for partition in self._reach.near(self._places.all):
                await mend_wrong_keys(self._link, partition)
            return await claim_job_anywhere(self._link, duty, holder, ttl_ms)

    async def jobs(self) -> Mapping[str, int]:
        return await claimed_jobs(self._link)

    async def finished_before(
        self, moment: int, limit: int, *, dead_letters: int | None = None, governed: int | None = None
    ) -> list[Task]:
        moments = (
            moment,
            moment if dead_letters is None else dead_letters,
            moment if governed is None else governed,
        )
        answers = await self._reach.each(
            self._places.all, lambda partition, patience_s: self._finished(partition, moments, limit, patience_s)
        )
        found = [task for tasks in answers.values() for task in tasks]
        found.sort(key=lambda task: task.finished_at or 0)
        self._places.remember(found)
        return found[:limit]

    async def _finished(
        self, partition: int, moments: tuple[int, int, int], limit: int, patience_s: float | None
    ) -> list[Task]:
        """Read finished tasks from the oldest, skipping dead letters and governed tasks that are stored longer."""
        key = f"{self._link.names[partition].prefix}task:finished"
        moment, _, governed = moments
        found: list[Task] = []
        offset = 0
        while len(found) < limit:
            command = ("ZRANGE", key, "-inf", f"({moment}", "BYSCORE", "LIMIT", offset, _PORTION, "WITHSCORES")
            [members] = await self._link.ask(partition, command, patience_s=patience_s)
            listed = [(task_id.decode(), int(float(at))) for task_id, at in pairs(members)]
            ids = [task_id for task_id, at in listed if at < governed or self._governed.get(task_id) != at]
            tasks = [task_of(record) for record in await raw_records(self._link, partition, ids)]
            found += [task for task in tasks if is_past_retention(task, *moments)]
            self._remember_governed(tasks)
            if len(listed) < _PORTION:
                break
            offset += _PORTION
        return found[:limit]

    def _remember_governed(self, tasks: Sequence[Task]) -> None:
        """Governed tasks stay for months: the next sweep need not read their records again."""
        if len(self._governed) > _MOST_REMEMBERED:
            self._governed.clear()
        for task in tasks:
            if task.review is not None and task.review.is_governed and task.finished_at is not None:
                self._governed[task.id] = task.finished_at

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
        return await self._reach.in_turn(self._places.all, self._expire_in, limit)

    async def _expire_in(self, partition: int, limit: int, patience_s: float | None) -> int:
        now = await self._link.time(partition, patience_s=patience_s)
        key = f"{self._link.names[partition].prefix}task:results"
        command = ("ZRANGE", key, "-inf", now, "BYSCORE", "LIMIT", 0, limit)
        [members] = await self._link.ask(partition, command)
        records = await raw_records(self._link, partition, [each.decode() for each in members])
        prepared = [(record[0].decode(), _expiry(record), *_without_result(record)) for record in records]
        results = [(task_id, expires, as_text(outcome)) for task_id, expires, outcome, _ in prepared]
        if not results:
            return 0
        gone = await self._link.run("expire_results", partition, {"results": results, "token": new_token()})
        went = {task_id.decode() for task_id in gone}
        await self._blobs.remove_refs([ref for task_id, _, _, ref in prepared if ref is not None and task_id in went])
        return len(went)

    async def remove_orphans(self, older_than_ms: int, limit: int) -> int:
        return await self._orphans.remove(older_than_ms, limit)


def _expiry(record: Record) -> int:
    return int(msgspec.msgpack.decode(record[1])[EXPIRES - 1])


def _without_result(record: Record) -> tuple[bytes, str | None]:
    """The outcome marked as expired, and the blob of the result, if it had one."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(record[3] or b"{}")
    except msgspec.DecodeError:
        fields = {}
    result = fields.pop("result", None)
    fields["result_expired"] = True
    ref = result.get("$blob") if isinstance(result, dict) else None
    return msgspec.json.encode(fields), ref if is_ref_of(record[0].decode(), ref) else None
