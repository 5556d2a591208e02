"""Blobs: large arguments and results in separate keys, written before the record refers to them."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ade.errors import StoreCorrupt
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.codec import pairs
from ade.stores.redis.cross_partition import CrossPartitionDependencies
from ade.stores.redis.partitions import partition_of_key

_REF = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}(\.[A-Za-z0-9_-]+)+")
_DIGEST_BYTES = 32


class RedisBlobs:
    """Blobs named `<task id>.<what>`, distributed by task ID; a set for each task contains their names.

    A sorted set lists all tasks with blobs, by the time a blob was stored or the task was last found to exist.
    """

    def __init__(self, link: RedisClient) -> None:
        self._link = link

    async def put_blob(self, ref: str, content: bytes) -> None:
        _check(ref)
        partition, prefix, task_id = self._place_of(ref)
        now = await self._link.time(partition)
        fresh = ("ZADD", f"{prefix}blobs", now, task_id)  # first, so that no sweep treats the blob as an orphan
        known = ("SADD", f"{prefix}blobs:{task_id}", ref)  # before the blob, so that every blob is listed
        content_key = ("SET", f"{prefix}blob:{ref}", hashlib.sha256(content).digest() + content)
        await self._link.ask(partition, fresh, known, content_key)

    async def get_blob(self, ref: str) -> bytes:
        _check(ref)
        partition, prefix, _ = self._place_of(ref)
        [stored] = await self._link.ask(partition, ("GET", f"{prefix}blob:{ref}"))
        if stored is None:
            raise StoreCorrupt(f"blob {ref} is missing; restore it from the newest backup")
        digest, content = bytes(stored[:_DIGEST_BYTES]), bytes(stored[_DIGEST_BYTES:])
        if hashlib.sha256(content).digest() != digest:
            raise StoreCorrupt(f"blob {ref} does not match its digest; restore it from the newest backup")
        return content

    async def remove_refs(self, refs: Sequence[str]) -> None:
        """Remove single blobs that no record refers to."""
        for ref in refs:
            _check(ref)
        await self._remove(refs)

    async def remove_blobs(self, task_ids: Sequence[str]) -> None:
        """Remove all blobs of deleted tasks."""
        places: defaultdict[int, list[str]] = defaultdict(list)
        for task_id in task_ids:
            places[partition_of_key(task_id, self._link.partitions)].append(task_id)
        for partition, there in places.items():
            prefix = self._link.names[partition].prefix
            known = await self._link.ask(partition, *(("SMEMBERS", f"{prefix}blobs:{task_id}") for task_id in there))
            await self._remove(ref.decode() for refs in known for ref in refs)
            await self._link.ask(partition, ("ZREM", f"{prefix}blobs", *there))

    async def _remove(self, refs: Iterable[str]) -> None:
        commands: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for ref in refs:
            partition, prefix, task_id = self._place_of(ref)
            commands[partition].append(("UNLINK", f"{prefix}blob:{ref}"))
            commands[partition].append(("SREM", f"{prefix}blobs:{task_id}", ref))
        for partition, removals in commands.items():
            await self._link.ask(partition, *removals)

    def _place_of(self, ref: str) -> tuple[int, str, str]:
        """Partition, key prefix, and task ID."""
        task_id = ref.partition(".")[0]
        partition = partition_of_key(task_id, self._link.partitions)
        return partition, self._link.names[partition].prefix, task_id


def _check(ref: str) -> None:
    """Raise StoreCorrupt for a name that ADE did not create, because it could lead to any key."""
    if not _REF.fullmatch(ref):
        raise StoreCorrupt(f"{ref[:80]!r} is not the name of a blob")


def is_ref_of(task_id: str, ref: object) -> bool:
    """Return whether this is the name of a blob of this task. A record from before could contain any other text."""
    return isinstance(ref, str) and ref.startswith(f"{task_id}.") and _REF.fullmatch(ref) is not None


# Orphans: blobs whose process crashed before it wrote the record, or pruned the record but not the blobs.


_PORTION = 500


class OrphanBlobs:
    """Removes blobs whose task does not exist."""

    def __init__(self, link: RedisClient, crossing: CrossPartitionDependencies) -> None:
        self._link = link
        self._crossing = crossing

    async def remove(self, older_than_ms: int, limit: int) -> int:
        """Check tasks whose blobs were last checked `older_than_ms` ago. Return how many tasks did not exist."""

        async def remove_in(partition: int, left: int, patience_s: float | None) -> int:
            removed, now = 0, await self._link.time(partition, patience_s=patience_s)
            while removed < left and (seen := await self._old(partition, now - older_than_ms)):
                removed += await self._sift(partition, seen, now)
            return removed

        return await self._link.reach.in_turn(range(self._link.partitions), remove_in, limit)

    async def _old(self, partition: int, moment: int) -> dict[str, int]:
        """IDs of tasks with blobs in this partition, and when these were stored or last checked."""
        key = f"{self._link.names[partition].prefix}blobs"
        command = ("ZRANGE", key, "-inf", f"({moment}", "BYSCORE", "LIMIT", 0, _PORTION, "WITHSCORES")
        [listed] = await self._link.ask(partition, command)
        return {task_id.decode(): int(float(put_at)) for task_id, put_at in pairs(listed)}

    async def _sift(self, partition: int, seen: dict[str, int], now: int) -> int:
        living = await self._existing(seen)
        missing = [task_id for task_id in seen if task_id not in living]
        if missing and self._link.partitions > 1:  # a draft might be moving between partitions
            await self._crossing.sweep()
            living |= await self._existing(missing)
        if living:
            key = f"{self._link.names[partition].prefix}blobs"
            marks = [word for task_id in living for word in (now, task_id)]
            await self._link.ask(partition, ("ZADD", key, "XX", "GT", *marks))
        blobs = [(task_id, seen[task_id]) for task_id in missing if task_id not in living]
        return int(await self._link.run("remove_orphan_blobs", partition, {"blobs": blobs})) if blobs else 0

    async def _existing(self, task_ids: Iterable[str]) -> set[str]:
        """The given tasks that exist in some partition."""
        asked, found = list(task_ids), set[str]()
        for partition in range(self._link.partitions):
            prefix = self._link.names[partition].prefix
            there = await self._link.ask(partition, *(("EXISTS", f"{prefix}task:{each}") for each in asked))
            found.update(each for each, is_there in zip(asked, there, strict=True) if is_there)
        return found
