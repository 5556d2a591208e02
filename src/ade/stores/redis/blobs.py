"""Large arguments and results lie in keys of their own, written before the record names them."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ade.core.errors import StoreCorrupt
from ade.stores.redis.link import Link
from ade.stores.redis.spreading import spread
from ade.stores.redis.timing import Timing, moment_of

_REF = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}(\.[A-Za-z0-9_-]+)+")
_DIGEST_BYTES = 32


class RedisBlobs:
    """Blobs named `<task id>.<what>`, spread by the task's id; a set for each task knows their names.

    All tasks with blobs are known by the time a blob was put or, later, seen to have its task.
    """

    def __init__(self, link: Link, timing: Timing) -> None:
        self._link = link
        self._timing = timing

    async def put_blob(self, ref: str, content: bytes) -> None:
        _check(ref)
        partition, prefix, task_id = self._place_of(ref)
        now = await moment_of(self._link, self._timing, partition)
        fresh = ("ZADD", f"{prefix}blobs", now, task_id)  # first: from here on no sweep takes it for an orphan
        known = ("SADD", f"{prefix}blobs:{task_id}", ref)  # before the blob, so that none is ever unknown to its task
        kept = ("SET", f"{prefix}blob:{ref}", hashlib.sha256(content).digest() + content)
        await self._link.ask(partition, fresh, known, kept)

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
        """Remove single blobs that no record names any more."""
        for ref in refs:
            _check(ref)
        await self._remove(refs)

    async def remove_blobs(self, task_ids: Sequence[str]) -> None:
        """Remove all blobs of tasks that are gone."""
        places: defaultdict[int, list[str]] = defaultdict(list)
        for task_id in task_ids:
            places[spread(task_id, self._link.partitions)].append(task_id)
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
        """Partition, prefix of its keys, and the task."""
        task_id = ref.partition(".")[0]
        partition = spread(task_id, self._link.partitions)
        return partition, self._link.names[partition].prefix, task_id


def _check(ref: str) -> None:
    """A name made by us leads to a key of ours; any other might lead anywhere."""
    if not _REF.fullmatch(ref):
        raise StoreCorrupt(f"{ref[:80]!r} is not the name of a blob")
